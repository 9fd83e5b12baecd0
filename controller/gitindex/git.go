package gitindex

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Filter is the name of the filter and of the diff driver in Git's configuration and attributes.
const Filter = "leasehold"

// ErrNoGit: there is no git to ask.
var ErrNoGit = errors.New("git is not installed")

// Checkout is a Git work tree.
type Checkout struct {
	Top    string // its root
	GitDir string // its own: where its index lies
	Common string // of all work trees of the repository
	Prefix string // of the directory that was asked about, with a slash at the end; "" for the root
	SHA256 bool
}

// Git runs git in a directory and returns what it prints. An error carries what it has said.
func Git(ctx context.Context, dir string, args ...string) (string, error) {
	path, err := exec.LookPath("git")
	if err != nil {
		return "", ErrNoGit
	}
	cmd := exec.CommandContext(ctx, path, append([]string{"-C", dir}, args...)...)
	for _, v := range os.Environ() {
		// What a hook or an alias has set is about another directory.
		if name, _, _ := strings.Cut(v, "="); !local[name] {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(complaint.String()); text != "" {
			err = fmt.Errorf("git %s: %s (%w)", args[0], text, err)
		}
		return "", err
	}
	return out.String(), nil
}

var local = map[string]bool{
	"GIT_DIR": true, "GIT_WORK_TREE": true, "GIT_INDEX_FILE": true, "GIT_COMMON_DIR": true, "GIT_PREFIX": true,
	"GIT_OBJECT_DIRECTORY": true, "GIT_ALTERNATE_OBJECT_DIRECTORIES": true, "GIT_CONFIG": true, "GIT_NAMESPACE": true,
	"GIT_INTERNAL_SUPER_PREFIX": true, "GIT_GRAFT_FILE": true, "GIT_SHALLOW_FILE": true,
}

// Find returns the checkout that dir, absolute and free of links, lies in. Errors: fs.ErrNotExist
// if it is in none, ErrNoGit.
func Find(ctx context.Context, dir string) (Checkout, error) {
	inside := false
	for up := dir; !inside; up = filepath.Dir(up) {
		_, err := os.Lstat(filepath.Join(up, ".git"))
		inside = err == nil
		if !inside && up == filepath.Dir(up) {
			return Checkout{}, fmt.Errorf("%s is not in a Git checkout: %w", dir, fs.ErrNotExist)
		}
	}
	out, err := Git(ctx, dir, "rev-parse", "--path-format=absolute", "--show-toplevel", "--absolute-git-dir", "--git-common-dir", "--show-object-format", "--show-prefix")
	if err != nil {
		return Checkout{}, err
	}
	lines := strings.SplitAfter(out, "\n")
	if len(lines) < 5 {
		return Checkout{}, fmt.Errorf("git rev-parse printed %q", out)
	}
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], "\r\n")
	}
	return Checkout{
		Top: filepath.FromSlash(lines[0]), GitDir: filepath.FromSlash(lines[1]), Common: filepath.FromSlash(lines[2]),
		SHA256: lines[3] == "sha256", Prefix: lines[4],
	}, nil
}

// Installed reports whether the filter is in force for the manifests of dir.
func Installed(ctx context.Context, dir string) (bool, error) {
	if out, err := Git(ctx, dir, "config", "--get", "filter."+Filter+".process"); err != nil || strings.TrimSpace(out) == "" {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 1 {
			err = nil // there is no such key
		}
		return false, err
	}
	out, err := Git(ctx, dir, "check-attr", "-z", "filter", "--", "leasehold.yaml")
	return strings.HasSuffix(out, "\x00"+Filter+"\x00"), err
}

// Open returns the index of the checkout that dir lies in, if the filter is installed there, and
// says in the log what it does. Otherwise it returns nil.
func Open(ctx context.Context, dir string, log *slog.Logger) *Index {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil
	}
	c, err := Find(ctx, dir)
	installed := false
	if err == nil {
		installed, err = Installed(ctx, dir)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		log.Warn("the directory is in a Git checkout, whose index is not kept up: " + err.Error())
		return nil
	case !installed:
		if _, err := Git(ctx, dir, "check-ignore", "-q", "--", dir); err == nil {
			return nil // Git does not look here
		}
		log.Info("the directory is in a Git checkout; 'leasehold git install' keeps status out of it")
		return nil
	}
	log.Info("the directory is a Git checkout with the filter installed: the index is kept up, and status is written while Git is at rest")
	return newIndex(dir, c, log)
}
