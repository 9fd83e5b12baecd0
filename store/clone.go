package store

// Clone returns a copy on which decisions can be tried: it shares nothing with r that a rule
// changes, and has noted no events. Engines use it.
func (r *Record) Clone() *Record {
	c := *r
	c.events = nil
	c.Result = clonePtr(r.Result)
	c.Memory = r.Memory.Clone()
	c.Mark, c.Restore, c.Pickup = clonePtr(r.Mark), clonePtr(r.Restore), clonePtr(r.Pickup)
	return &c
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// IsZero reports whether nothing is remembered.
func (m *Memory) IsZero() bool {
	return m.Mark == nil && m.Observed == 0 && m.SpecHash == "" && m.Restore == nil && m.Trouble == "" && m.Remark == "" &&
		m.TTL == 0 && m.Pickup == nil &&
		len(m.Reports) == 0 && len(m.Beats) == 0 && len(m.Conditions) == 0
}
