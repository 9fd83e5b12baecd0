package manifests

// leaseState is what asking for a lease told about writers.
type leaseState int

const (
	leaseUnknown leaseState = iota // the system cannot tell
	leaseBusy                      // somebody has the file open for writing
	leaseHeld                      // nobody has, and who wants to waits for us
)
