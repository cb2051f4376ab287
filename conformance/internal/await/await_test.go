package await

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
)

func TestUntil(t *testing.T) {
	var mu sync.Mutex
	changed := sync.NewCond(&mu)
	n := 0
	go func() {
		mu.Lock()
		defer mu.Unlock()
		n = 1
		changed.Broadcast()
	}()
	mu.Lock()
	defer mu.Unlock()
	if err := Until(t.Context(), changed, "one", func() bool { return n == 1 }); err != nil {
		t.Error(err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go cancel(cause)
	err := Until(ctx, changed, "two", func() bool { return n == 2 })
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "wait for two") {
		t.Error(err)
	}
}
