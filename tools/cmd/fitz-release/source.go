package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// commitDigits is how much of a commit the programs print.
const commitDigits = 12

// source is the state of the tree that a release is made of.
type source struct {
	commit string    // with the mark -dirty when there are changes
	made   time.Time // of the commit; every file of a release has it
	files  []string  // that belong to the tree, with slashes
}

// look reads the state of the tree.
func look(ctx context.Context, root string) (source, error) {
	commit, err := output(ctx, root, nil, "git", "rev-parse", fmt.Sprintf("--short=%d", commitDigits), "HEAD")
	if err != nil {
		return source{}, err
	}
	stamp, err := output(ctx, root, nil, "git", "show", "--no-patch", "--format=%ct", "HEAD")
	if err != nil {
		return source{}, err
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return source{}, fmt.Errorf("time of the commit: %w", err)
	}
	changes, err := output(ctx, root, nil, "git", "status", "--porcelain")
	if err != nil {
		return source{}, err
	}
	s := source{commit: commit, made: time.Unix(seconds, 0).UTC()}
	if changes != "" {
		s.commit += "-dirty"
	}
	list, err := output(ctx, root, nil, "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	if err != nil {
		return source{}, err
	}
	for _, name := range strings.Split(strings.TrimSuffix(list, "\x00"), "\x00") {
		if _, err := os.Lstat(filepath.Join(root, filepath.FromSlash(name))); err == nil { // else removed and not committed
			s.files = append(s.files, name)
		}
	}
	slices.Sort(s.files)
	return s, nil
}

func (s source) dirty() bool { return strings.HasSuffix(s.commit, "-dirty") }

// copyTo copies the tree to another folder.
func (s source) copyTo(root, to string) error {
	for _, name := range s.files {
		from, into := filepath.Join(root, filepath.FromSlash(name)), filepath.Join(to, filepath.FromSlash(name))
		info, err := os.Stat(from)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(into), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(into, content, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

// output runs a program in a folder, with variables on top of the environment, and returns what it prints, without the last line end.
func output(ctx context.Context, dir string, environ []string, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), environ...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return "", errors.Join(fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err), errors.New(strings.TrimSpace(stderr.String())))
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
