package main

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/watch"
)

// redrawEvery is how often a screen is drawn anew although nothing changed: times since something go on.
const redrawEvery = time.Second

// Control sequences of ECMA-48 that every terminal knows.
const (
	cursorHome = "\x1b[H"
	clearLine  = "\x1b[K"
	clearBelow = "\x1b[J"
	clearAll   = "\x1b[2J"
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
)

// screen draws the view of a watch on a terminal.
type screen struct {
	file     *os.File
	selector string
	observer *fitz.InventoryObserver

	mu sync.Mutex // of the terminal
}

func newScreen(file *os.File, selector string, observer *fitz.InventoryObserver) *screen {
	return &screen{file: file, selector: selector, observer: observer}
}

// run draws the screen whenever something changes, and every second, until ctx ends, the view fails or the terminal is gone.
func (s *screen) run(ctx context.Context) error {
	if _, err := s.file.WriteString(hideCursor + clearAll); err != nil {
		return err
	}
	defer func() { _, _ = s.file.WriteString(showCursor) }()
	ctx, cancel := context.WithCancelCause(ctx)
	var redrawing sync.WaitGroup
	defer redrawing.Wait()
	defer cancel(nil)
	redrawing.Go(func() {
		if err := each(ctx, redrawEvery, s.draw); err != nil {
			cancel(err)
		}
	})
	if err := s.draw(); err != nil {
		return err
	}
	for _, err := range s.observer.Changes(ctx) {
		if err != nil {
			return err
		}
		if err := s.draw(); err != nil {
			return err
		}
	}
	return nil
}

// draw writes the whole screen in one go, so that it does not flicker.
func (s *screen) draw() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	width, height, err := term.GetSize(int(s.file.Fd()))
	if err != nil {
		width, height = 0, 0
	}
	lines := watch.Live(s.selector, watch.ViewOf(s.observer), time.Now(), watch.Screen{Width: width, Height: height})
	_, err = s.file.WriteString(frame(lines))
	return err
}

// frame places lines on a cleared screen. The cursor stays on the last line, so that nothing scrolls.
func frame(lines []string) string {
	return cursorHome + strings.Join(lines, clearLine+"\r\n") + clearLine + clearBelow
}
