package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
)

// session is the writer connection with its prepared statements. It is used by whoever leads, and
// only inside sql.Conn.Raw. No statement on it sees a caller's context: a transaction that has
// begun is always brought to its end.
type session struct {
	conn driver.Conn

	begin, commit, rollback    *stmt
	meta, former, dataVersion  *stmt
	mark, unmark               *stmt
	load, loadMany             *stmt
	insert, lease, full, side  *stmt
	tail, event, events, count *stmt
	trim, feed                 *stmt
}

// eventRows is how many events go into one INSERT where there are as many.
const eventRows = 32

func newSession(conn driver.Conn) (*session, error) {
	s := &session{conn: conn}
	for _, p := range []struct {
		stmt **stmt
		sql  string
	}{
		{&s.begin, "BEGIN IMMEDIATE"},
		{&s.commit, "COMMIT"},
		{&s.rollback, "ROLLBACK"},
		{&s.meta, sqlMeta},
		{&s.former, "SELECT identity, revision FROM leasehold_former ORDER BY rowid"},
		{&s.dataVersion, "PRAGMA data_version"},
		{&s.mark, "UPDATE leasehold_meta SET revision = revision + 1, writer = 1"},
		{&s.unmark, "UPDATE leasehold_meta SET writer = 0"},
		{&s.load, sqlLoadOne},
		{&s.loadMany, sqlLoadMany},
		{&s.insert, sqlInsert},
		{&s.lease, sqlLease},
		{&s.full, sqlFull},
		{&s.side, sqlSide},
		{&s.tail, sqlTail},
		{&s.event, sqlEvent(1)},
		{&s.events, sqlEvent(eventRows)},
		{&s.count, "UPDATE leasehold_history SET count = count + ?1 WHERE seq = ?2"},
		{&s.trim, "DELETE FROM leasehold_history WHERE seq <= (SELECT max(seq) FROM leasehold_history) - ?1"},
		{&s.feed, "INSERT INTO leasehold_changes(id, origin) VALUES(?1, ?2)"},
	} {
		var err error
		if *p.stmt, err = prepare(conn, p.sql); err != nil {
			s.close()
			return nil, fmt.Errorf("prepare %q: %w", p.sql, err)
		}
	}
	return s, nil
}

func (s *session) close() {
	for _, st := range []*stmt{s.begin, s.commit, s.rollback, s.meta, s.former, s.dataVersion, s.mark, s.unmark, s.load, s.loadMany,
		s.insert, s.lease, s.full, s.side, s.tail, s.event, s.events, s.count, s.trim, s.feed} {
		if st != nil {
			st.stmt.Close()
		}
	}
}

// run executes a statement that needs no preparation.
func (s *session) run(query string, args ...driver.Value) error {
	st, err := prepare(s.conn, query)
	if err != nil {
		return err
	}
	defer st.stmt.Close()
	_, err = st.exec(args...)
	return err
}

// stmt is a prepared statement below database/sql, whose locking and conversions cost more than
// the statements themselves.
type stmt struct {
	stmt driver.Stmt
	args []driver.NamedValue
	row  []driver.Value
}

func prepare(conn driver.Conn, query string) (*stmt, error) {
	st, err := conn.Prepare(query)
	if err != nil {
		return nil, err
	}
	return &stmt{stmt: st}, nil
}

func (st *stmt) bind(args []driver.Value) []driver.NamedValue {
	st.args = st.args[:0]
	for i, a := range args {
		st.args = append(st.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return st.args
}

// exec returns the number of rows changed.
func (st *stmt) exec(args ...driver.Value) (int64, error) {
	res, err := st.stmt.(driver.StmtExecContext).ExecContext(context.Background(), st.bind(args))
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// insert returns the number of the last row inserted.
func (st *stmt) insert(args ...driver.Value) (int64, error) {
	res, err := st.stmt.(driver.StmtExecContext).ExecContext(context.Background(), st.bind(args))
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

// each calls f with every row, whose values last until f returns.
func (st *stmt) each(f func(row []driver.Value) error, args ...driver.Value) (err error) {
	rows, err := st.stmt.(driver.StmtQueryContext).QueryContext(context.Background(), st.bind(args))
	if err != nil {
		return err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	if st.row == nil {
		st.row = make([]driver.Value, len(rows.Columns()))
	}
	for {
		if err := rows.Next(st.row); err != nil {
			return noEOF(err)
		}
		if err := f(st.row); err != nil {
			return err
		}
	}
}

func noEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}
