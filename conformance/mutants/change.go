package mutants

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/fitzwire/fitz/conformance/scenario"
)

// Auto is the revision that Changes finds by itself.
const Auto = "auto"

// ErrNoHistory says that there is nothing to compare the tree with: it is no repository, or one without history.
var ErrNoHistory = errors.New("there is no history to compare with")

// Changes is what differs between a revision and the working tree.
type Changes struct {
	Since string   // the revision
	Files []string // changed, added and removed files, below the root, with slashes; files that are not tracked yet included
	Old   []Mutant // the list at the revision; nil when there was none
}

// Since finds what differs from a revision. Auto is where the current branch left main, and for main itself the commit before. The error is
// ErrNoHistory for Auto when there is no such revision.
func Since(ctx context.Context, root, revision string) (*Changes, error) {
	if revision == Auto {
		var err error
		if revision, err = base(ctx, root); err != nil {
			return nil, err
		}
	}
	changed, err := git(ctx, root, "diff", "--name-only", "--no-renames", "-z", revision, "--")
	if err != nil {
		return nil, err
	}
	added, err := git(ctx, root, "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	c := &Changes{Since: revision}
	for _, name := range strings.Split(changed+added, "\x00") {
		if name != "" {
			c.Files = append(c.Files, name)
		}
	}
	if text, err := git(ctx, root, "show", revision+":"+File); err == nil {
		c.Old, _ = parse([]byte(text)) // a list that was wrong then counts as none
	}
	return c, nil
}

// base is the revision that Auto means.
func base(ctx context.Context, root string) (string, error) {
	head, err := git(ctx, root, "rev-parse", "HEAD")
	if err != nil {
		return "", errors.Join(ErrNoHistory, err)
	}
	for _, main := range []string{"origin/main", "main"} {
		fork, err := git(ctx, root, "merge-base", "HEAD", main)
		if err == nil && fork != head {
			return strings.TrimSpace(fork), nil
		}
	}
	before, err := git(ctx, root, "rev-parse", "HEAD~1")
	if err != nil {
		return "", errors.Join(ErrNoHistory, err)
	}
	return strings.TrimSpace(before), nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = root
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}

// Touched returns the faults that a change can concern: those in a package of which a source was changed, those whose scenario was changed,
// and those whose entry in the list is new or another. When the suite itself was changed, those of Quick are added.
func Touched(list []Mutant, hooks Hooks, scenarios []*scenario.Scenario, c *Changes) []Mutant {
	packages, files, suite := map[string]bool{}, map[string]bool{}, false
	for _, name := range c.Files {
		files[name] = true
		if !isSource(name) {
			continue
		}
		packages[path.Dir(name)] = true
		suite = suite || strings.HasPrefix(name, "conformance/")
	}
	wanted := map[string]bool{}
	if suite {
		for _, m := range Quick(list, hooks) {
			wanted[m.ID] = true
		}
	}
	for _, m := range list {
		touched := slices.ContainsFunc(hooks[m.Side][m.ID], func(dir string) bool { return packages[dir] })
		for _, sc := range scenarios {
			touched = touched || slices.Contains(m.KilledBy, sc.ID) && files[path.Join("conformance/scenarios", sc.File)]
		}
		same := slices.ContainsFunc(c.Old, func(old Mutant) bool { return reflect.DeepEqual(old, m) })
		wanted[m.ID] = wanted[m.ID] || touched || files[File] && !same
	}
	return slices.DeleteFunc(slices.Clone(list), func(m Mutant) bool { return !wanted[m.ID] })
}

// Quick returns one fault of every package that has some: enough to see that faults are still noticed at all.
func Quick(list []Mutant, hooks Hooks) []Mutant {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(list), func(m Mutant) bool {
		dirs := hooks[m.Side][m.ID]
		if len(dirs) == 0 || seen[dirs[0]] {
			return true
		}
		seen[dirs[0]] = true
		return false
	})
}
