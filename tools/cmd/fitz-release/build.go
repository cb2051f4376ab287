package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// buildCommand builds what the archive of one platform holds, without the archive.
type buildCommand struct {
	Target string `required:"" placeholder:"OS/ARCH" help:"Platform."`
	Commit string `help:"Commit that the programs print (default: that of the tree)." placeholder:"COMMIT"`
	Out    string `required:"" help:"Folder for the programs." placeholder:"DIR"`
}

// Run builds.
func (c *buildCommand) Run(s *session) error {
	chosen, err := choose([]string{c.Target})
	if err != nil {
		return err
	}
	if len(chosen) != 1 {
		return fmt.Errorf("target %q is more than one platform", c.Target)
	}
	commit := c.Commit
	if commit == "" {
		state, err := look(s.ctx, s.root)
		if err != nil {
			return fmt.Errorf("%w; name the commit with --commit where there is no git", err)
		}
		commit = state.commit
	}
	out, err := filepath.Abs(c.Out)
	if err != nil {
		return err
	}
	return build(s.ctx, s.root, chosen[0], commit, "", out)
}

// environment makes a build independent of what the caller has set: no C, the oldest processors of each platform, the Go that runs already.
func (t target) environment(cache string) []string {
	environ := []string{"GOOS=" + t.os, "GOARCH=" + t.arch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off",
		"GOWORK=off", "GOTOOLCHAIN=local"}
	if cache != "" {
		environ = append(environ, "GOCACHE="+cache)
	}
	return environ
}

// linker sets the commit and leaves tables for debuggers out, which are half of a program. Stack traces stay complete.
func linker(commit string) string {
	return "-s -w -X github.com/fitzwire/fitz/internal/version.Commit=" + commit
}

// build builds all programs for a target into a folder. An empty cache is that of the user.
func build(ctx context.Context, root string, t target, commit, cache, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", linker(commit), "-o", out + string(filepath.Separator)}
	for _, program := range programs {
		args = append(args, "./"+program)
	}
	if _, err := output(ctx, root, t.environment(cache), "go", args...); err != nil {
		return fmt.Errorf("%s: %w", t, err)
	}
	return nil
}
