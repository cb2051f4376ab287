//go:build tools

// Package deps pins the tools of the build, away from the module graph of users.
package deps

import (
	_ "github.com/go-task/task/v3/cmd/task"
	_ "golang.org/x/perf/cmd/benchstat"
	_ "honnef.co/go/tools/cmd/staticcheck"
)
