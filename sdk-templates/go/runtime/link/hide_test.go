package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

const jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ3In0.c2lnbmF0dXJl"

// Nobody is shown a token, and the error compares as before.
func TestHideToken(t *testing.T) {
	inner := fmt.Errorf("fetch with %s: %w", jwt, io.ErrNoProgress)
	err := HideToken(inner, "")
	if strings.Contains(err.Error(), "eyJ") || !errors.Is(err, io.ErrNoProgress) || errors.Unwrap(err) != nil {
		t.Errorf("%v", err)
	}
	if got := HideToken(errors.New("opaque-token is bad, a is not"), "opaque-token").Error(); got != "... is bad, a is not" {
		t.Errorf("%q", got)
	}
	if got := HideToken(errors.New("a bad day"), "a").Error(); got != "a bad day" {
		t.Errorf("%q", got)
	}
	var found *Error
	if err := HideToken(&Error{Kind: Lost, Reason: jwt}, ""); !errors.As(err, &found) || found.Kind != Lost {
		t.Errorf("%v", err)
	}
	if !isContext(HideToken(context.Canceled, "")) {
		t.Error("the error of a context does not count as one")
	}
}

// A peer that says the token back does not get it into the errors of the client, while the session is opened and after.
func TestTokenSaidBack(t *testing.T) {
	const token = "opaque-token"
	serve := func(first bool) func(context.Context, *websocket.Conn) {
		return func(ctx context.Context, conn *websocket.Conn) {
			if !first {
				sendHello(ctx, conn)
			}
			_ = conn.Close(websocket.StatusPolicyViolation, "connect failed: "+token+" is bad")
		}
	}
	for _, first := range []bool{true, false} {
		address := webSocketPeerWith(t, token, serve(first))
		c, err := Dial(t.Context(), address, toyProtocol(), Options{Token: token})
		if err == nil {
			<-c.Done()
			err = c.Err()
			_ = c.Close()
		}
		if err == nil || strings.Contains(err.Error(), token) || !strings.Contains(err.Error(), "is bad") {
			t.Errorf("first %v: %v", first, err)
		}
		if first && !IsKind(err, Rejected) {
			t.Errorf("no refusal: %v", err)
		}
	}
}

// Errors about an address do not show what may be secret in it.
func TestHideAddress(t *testing.T) {
	for address, want := range map[string]string{
		"toy://h:1":                "toy://h:1",
		"toy://user:secret@h:1":    "toy://...@h:1",
		"toy://user:sec/ret@h:1/x": "toy://...@h:1/x",
		"user:secret@h":            "...@h",
		"ws://h/toy?token=secret":  "ws://h/toy?...",
		"ws://h/toy#secret":        "ws://h/toy#...",
		"":                         "",
	} {
		if got := HideAddress(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
		if err := CheckAddress(address, toyProtocol()); err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, address := range []string{"toy://user:secret@h:x", "toy://secret@h\x00", "toy://u:secret@[h"} {
		if err := CheckAddress(address, toyProtocol()); !IsKind(err, Invalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
