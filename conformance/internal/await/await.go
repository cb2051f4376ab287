// Package await waits for what is looked at under a lock.
package await

import (
	"context"
	"fmt"
	"sync"
)

// Until returns when done reports true, which it is asked at once and after every broadcast. The lock of changed is held when it is called, when done
// is asked and when it returns. When ctx ends before, the error names what was waited for and has the cause of ctx.
func Until(ctx context.Context, changed *sync.Cond, what string, done func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		changed.L.Lock()
		defer changed.L.Unlock()
		changed.Broadcast()
	})
	defer stop()
	for !done() {
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		}
		changed.Wait()
	}
	return nil
}
