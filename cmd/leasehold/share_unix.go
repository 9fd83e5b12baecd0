//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

func groupOf(info fs.FileInfo) (gid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Gid), true
}

// checkState refuses a state directory that somebody else could have put into dir, or could put
// another database into.
func checkState(dir, state string) error {
	info, err := os.Lstat(state)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	home, err := os.Stat(dir)
	if err != nil {
		return err
	}
	its, ok1 := info.Sys().(*syscall.Stat_t)
	dirs, ok2 := home.Sys().(*syscall.Stat_t)
	if !ok1 || !ok2 {
		return nil
	}
	if info.IsDir() && info.Mode()&0o002 != 0 {
		return fmt.Errorf("%s: everybody may write there, and put another database into it; run chmod o-w on it", state)
	}
	if its.Uid == uint32(os.Geteuid()) || its.Uid == 0 || its.Uid == dirs.Uid {
		return nil
	}
	groups, err := os.Getgroups()
	if err != nil {
		return err
	}
	shared := info.IsDir() && info.Mode()&fs.ModeSetgid != 0 && info.Mode()&0o020 != 0
	if shared && slices.Contains(append(groups, os.Getegid()), int(its.Gid)) {
		return nil // run --group, by another of the group
	}
	return fmt.Errorf("%s belongs to another user (uid %d), who may have put it there; remove it, or name another store with --store", state, its.Uid)
}
