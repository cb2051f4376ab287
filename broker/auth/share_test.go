package auth_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// Tokens that permit the same share what was made of it; whatever makes a difference to what a session may do is kept apart.
func TestEqualPermissionsAreShared(t *testing.T) {
	a := open(t, config())
	permits := func(family string, permissions ...string) *auth.Access {
		return connect(t, a, hs256(t, claims(object{"tid": family, "sub": fmt.Sprint(permissions, family), "permissions": permissions})))
	}
	first := permits("dev", "lease://a/**#read", "lease://b/**#write")
	if again := connect(t, a, hs256(t, claims(object{"sub": "x", "exp": now.Unix() + 5, "permissions": []string{"lease://a/**#read", "lease://b/**#write"}}))); again != first {
		t.Error("equal permissions are not shared")
	}
	different := []*auth.Access{
		first,
		permits("ops", "lease://a/**#read", "lease://b/**#write"),
		permits("dev", "lease://a/**#write", "lease://b/**#read"),
		permits("dev", "lease://a/**#read"),
		permits("dev", "lease://a/**", "lease://b/**#write"),
		permits("dev", "lease://a/**#read", "lease://b/**#write", "lease://c/**#write"),
		permits("dev", "queue://a/**#read", "lease://b/**#write"),
	}
	for i, one := range different {
		for _, other := range different[:i] {
			if one == other {
				t.Errorf("permissions %d are those of another token", i)
			}
		}
	}
	if different[1].Family() != 2 || different[2].AllowsRoute(wire.AccessRead, concrete(t, "lease://a/b/c")) || !first.AllowsRoute(wire.AccessRead, concrete(t, "lease://a/b/c")) {
		t.Error("shared permissions are not those of the token")
	}
	runtime.KeepAlive(different)
}

// What no session uses is forgotten: tokens that never permit the same twice do not fill the memory.
func TestUnusedPermissionsAreForgotten(t *testing.T) {
	a := open(t, config())
	kept := connect(t, a, hs256(t, claims(object{"permissions": []string{"lease://kept/**"}})))
	for i := range 1000 {
		connect(t, a, hs256(t, claims(object{"permissions": []string{fmt.Sprintf("lease://r%d/**", i)}})))
		if i%100 == 99 {
			runtime.GC()
		}
	}
	if n := auth.Shared(a); n > 600 {
		t.Errorf("%d of 1001 are remembered", n)
	}
	if again := connect(t, a, hs256(t, claims(object{"permissions": []string{"lease://kept/**"}}))); again != kept {
		t.Error("permissions that are in use were forgotten")
	}
	runtime.KeepAlive(kept)
}

func TestConcurrentConnects(t *testing.T) {
	a := open(t, config())
	tokens := make([]string, 8)
	for i := range tokens {
		tokens[i] = hs256(t, claims(object{"permissions": []string{fmt.Sprintf("lease://r%d/**#read", i)}}))
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 400 {
				access, err := a.Connect([]byte(tokens[i%len(tokens)]))
				if err != nil || !access.AllowsRoute(wire.AccessRead, concrete(t, fmt.Sprintf("lease://r%d/a/k", i%len(tokens)))) {
					t.Errorf("%v", err)
					return
				}
			}
		})
	}
	group.Wait()
}
