package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/controller/gitindex"
	"leasehold.dev/leasehold/manifests"
)

func newGitCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "git",
		Short: "Keep status out of Git",
		Long: `Where the directory of the manifests is a Git checkout, status in the files would make the work tree
dirty and pulls conflict. 'git install' sets up a clean filter in the repository, so that Git stores and
compares manifests without status; the controller keeps Git's index up to date when it writes.

What a user writes, 'tick' and the reports of workers are changes of the spec, and Git shows them.`,
		Example: `  # Keep status out of this checkout
  leasehold git install

  # See what is set up
  leasehold git status`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	sub := func(use, short, long, example string, run func(context.Context, *globals, *gitSetup) error) {
		cmd.AddCommand(&cobra.Command{
			Use: use + " [DIR]", Short: short, Long: long, Example: example,
			Args: cobra.MaximumNArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				if len(args) == 1 {
					g.dir = args[0]
				}
				s, err := newGitSetup(c.Context(), g)
				if err != nil {
					return err
				}
				return run(c.Context(), g, s)
			},
		})
	}
	sub("install", "Set up the filter in the repository",
		`Sets up a clean filter for the manifests in DIR, and ignores what belongs to Leasehold. It changes the
repository's own configuration and the files attributes and exclude in .git/info, which all of its work
trees share, and nothing that is tracked. A clone in which it was not run works as before, and shows
status as a change. A controller that is running notices it at its next start.`,
		"  # Once in each clone that a controller runs in\n  leasehold git install jobs", gitInstall)
	sub("uninstall", "Remove what install has set up",
		"Removes what 'git install' has added for DIR, and the filter itself with the last directory.",
		"  leasehold git uninstall jobs", gitUninstall)
	sub("status", "Say what is set up",
		"Says what is set up for DIR, and whether it works. Exit code 1: something is missing.",
		"  leasehold git status jobs", gitStatus)
	cmd.AddCommand(newGitFilterCommand(g))
	return cmd
}

// gitSetup is what there is to set up for a directory.
type gitSetup struct {
	dir                 string
	repo                gitindex.Checkout
	attributes, exclude string // files
	patterns, ignored   block
	config              [][2]string
}

func newGitSetup(ctx context.Context, g *globals) (*gitSetup, error) {
	dir, err := findDir(g.dir)
	if err != nil {
		return nil, err
	}
	repo, err := gitindex.Find(ctx, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not in a Git checkout", dir)
	} else if err != nil {
		return nil, err
	}
	program, err := ownPath()
	if err != nil {
		return nil, err
	}
	name := "/" + repo.Prefix
	s := &gitSetup{
		dir: dir, repo: repo,
		attributes: filepath.Join(repo.Common, "info", "attributes"),
		exclude:    filepath.Join(repo.Common, "info", "exclude"),
		patterns:   block{name: name},
		ignored: block{name: name, lines: []string{
			globText(name) + stateName + "/",
			globText(name) + "**/.*.leasehold-tmp-*",
		}},
		config: [][2]string{
			{"filter." + gitindex.Filter + ".process", filterProcessCommand(program)},
			{"filter." + gitindex.Filter + ".required", "false"},
			// The job's name in the head of a hunk.
			{"diff." + gitindex.Filter + ".xfuncname", `^(  name:.*|- metadata:.*)$`},
		},
	}
	for _, ext := range []string{"yaml", "yml", "json"} {
		s.patterns.lines = append(s.patterns.lines,
			attributeText(globText(name)+"**/*."+ext)+" filter="+gitindex.Filter+" diff="+gitindex.Filter)
	}
	return s, nil
}

const filterCommand = " git filter-process"

// filterProcessCommand is what Git starts. Git dies of a filter that hangs up, even one that is not
// required: where the program is gone, what is started in its place says that it can do nothing, and
// Git goes on without it.
func filterProcessCommand(program string) string {
	program = shellQuote(program)
	return "if test -x " + program + "; then exec " + program + filterCommand + "; fi; " +
		`printf '0016git-filter-server\n000eversion=2\n00000000'; exec cat >/dev/null`
}

// filterProgram returns the program in such a command.
func filterProgram(process string) (string, bool) {
	head, _, ours := strings.Cut(process, filterCommand)
	if _, after, found := strings.Cut(head, "; then exec "); found {
		head = after
	}
	return shellUnquote(head), ours
}

// ownPath is the path of this program as it was called, so that a link to the present version stays
// one.
func ownPath() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	called, err := exec.LookPath(os.Args[0])
	if err == nil {
		called, err = filepath.Abs(called)
	}
	if err != nil {
		return exe, nil
	}
	a, err1 := os.Stat(exe)
	b, err2 := os.Stat(called)
	if err1 != nil || err2 != nil || !os.SameFile(a, b) {
		return exe, nil
	}
	return called, nil
}

// shellQuote writes a path for Git, which hands commands to a shell, on every system.
func shellQuote(path string) string {
	return "'" + strings.ReplaceAll(filepath.ToSlash(path), "'", `'\''`) + "'"
}

func shellUnquote(text string) string {
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(text, "'"), "'"), `'\''`, "'")
}

var globEscaper = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, " ", `\ `)

func globText(path string) string { return globEscaper.Replace(path) }

// attributeText quotes a pattern for an attributes file, where a space would end it.
func attributeText(pattern string) string {
	if !strings.ContainsAny(pattern, " \t\"") {
		return pattern
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\t", `\t`).Replace(pattern) + `"`
}

func gitInstall(ctx context.Context, g *globals, s *gitSetup) error {
	for _, c := range s.config {
		if _, err := gitindex.Git(ctx, s.dir, "config", "--local", c[0], c[1]); err != nil {
			return err
		}
	}
	if err := rewrite(s.attributes, s.patterns.add); err != nil {
		return err
	}
	if err := rewrite(s.exclude, s.ignored.add); err != nil {
		return err
	}
	// What status has made Git call modified so far, it is to look at again.
	if err := gitindex.Recheck(s.dir, s.repo); err != nil {
		fmt.Fprintf(g.Err, "warning: %s\n", plain(err.Error()))
	}
	fmt.Fprintf(g.Out, "the filter is installed for %s in %s\n", s.patterns.name, s.repo.Common)
	stored, err := s.stored(ctx)
	if err != nil {
		return err
	}
	if len(stored) > 0 {
		fmt.Fprintf(g.Out, "%s tracked with a status in it, %s among them, which the next commit takes out. To do so now:\n  git add --renormalize -- %s && git commit -m 'Keep status out of Git'\n",
			count(len(stored), "manifest"), plain(stored[0]), shellQuote(s.dir))
	}
	return nil
}

// rewrite changes a file of Git's, whole or not at all. One that is left empty is removed.
func rewrite(path string, change func([]byte) []byte) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	next := change(text)
	if bytes.Equal(next, text) {
		return nil
	}
	if len(next) == 0 {
		return os.Remove(path)
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return replaceFile(path, next, mode)
}

func gitUninstall(ctx context.Context, g *globals, s *gitSetup) error {
	for file, b := range map[string]block{s.attributes: s.patterns, s.exclude: s.ignored} {
		if err := rewrite(file, b.remove); err != nil {
			return err
		}
	}
	rest, err := os.ReadFile(s.attributes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if bytes.Contains(rest, []byte("filter="+gitindex.Filter)) {
		fmt.Fprintf(g.Out, "the filter is no longer used for %s, but for others of %s\n", s.patterns.name, s.repo.Common)
		return nil
	}
	for _, c := range s.config {
		value, err := s.get(ctx, c[0])
		if err != nil {
			return err
		}
		if _, ours := filterProgram(value); value == "" || value != c[1] && !ours {
			continue
		}
		if _, err := gitindex.Git(ctx, s.dir, "config", "--local", "--unset-all", c[0]); err != nil {
			return err
		}
	}
	fmt.Fprintf(g.Out, "the filter is removed from %s; Git shows status as a change again\n", s.repo.Common)
	return nil
}

// get returns a value of the repository's own configuration, "" if there is none.
func (s *gitSetup) get(ctx context.Context, key string) (string, error) {
	out, err := gitindex.Git(ctx, s.dir, "config", "--local", "--get", key)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return "", nil
	}
	return strings.TrimSuffix(out, "\n"), err
}

func gitStatus(ctx context.Context, g *globals, s *gitSetup) error {
	missing := false
	row := func(ok bool, name, text string) {
		mark := "ok"
		if !ok {
			mark, missing = "missing", true
		}
		fmt.Fprintf(g.Out, "%-11s %-8s %s\n", name, mark, plain(text))
	}
	process, err := s.get(ctx, s.config[0][0])
	if err != nil {
		return err
	}
	row(process != "", "filter", s.config[0][0])
	if program, ours := filterProgram(process); ours {
		_, err := exec.LookPath(filepath.FromSlash(program))
		row(err == nil, "program", program)
	}
	for _, f := range []struct {
		name, file string
		b          block
	}{{"attributes", s.attributes, s.patterns}, {"exclude", s.exclude, s.ignored}} {
		text, err := os.ReadFile(f.file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		row(bytes.Equal(f.b.add(text), text), f.name, f.b.name+" in "+f.file)
	}
	inForce, err := gitindex.Installed(ctx, s.dir)
	if err != nil {
		return err
	}
	row(inForce, "in force", s.dir)
	stored, err := s.stored(ctx)
	if err != nil {
		return err
	}
	if len(stored) > 0 {
		fmt.Fprintf(g.Out, "%s tracked with a status in it, %s among them: git add --renormalize takes it out\n", count(len(stored), "manifest"), plain(stored[0]))
	}
	if missing {
		return &exitError{code: exitFault}
	}
	return nil
}

// stored returns manifests that Git has stored with a status, a few at least if there are any.
func (s *gitSetup) stored(ctx context.Context) (paths []string, err error) {
	out, err := gitindex.Git(ctx, s.dir, "grep", "--cached", "-l", "-z", "-F", "-e", "status", "--", ".")
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	const most = 50 // each is read by a process of its own
	for i, path := range strings.Split(strings.TrimSuffix(out, "\x00"), "\x00") {
		if i >= most {
			break
		}
		if !manifests.IsManifest(path) {
			continue
		}
		data, err := gitindex.Git(ctx, s.dir, "cat-file", "blob", ":./"+path)
		if err != nil {
			return nil, err
		}
		if string(manifests.StripStatus(path, []byte(data))) != data {
			paths = append(paths, path)
		}
	}
	return paths, nil
}
