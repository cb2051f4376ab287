package fitz_test

import (
	"context"
	"io"
	"log"
	"os"
	"testing"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/settings"
)

// TestMain runs the examples with a broker of their own, which they find as every program does: through the environment.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	c, _, err := config.Load([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, func(string) string { return "" }, io.Discard)
	if err != nil {
		log.Fatal(err)
	}
	b, err := broker.Start(context.Background(), c)
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	if err := os.Setenv(fitz.EnvURL, "fitz://"+b.Addresses()[settings.ListenerTCP.Name]); err != nil {
		log.Fatal(err)
	}
	return m.Run()
}
