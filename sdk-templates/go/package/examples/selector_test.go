package fitz_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/fitzwire/fitz/generated/go/fitz"
)

func ExampleSelector() {
	view, err := fitz.ParseSelector("lease://acme/*/1")
	if err != nil {
		log.Fatal(err)
	}
	candidates := []string{"lease://acme/renderers/1", "lease://acme/renderers/2", "lease://acme/encoders/1"}
	for _, route := range view.Select(candidates) {
		fmt.Println("covered:", route)
	}
	everything, err := fitz.ParseSelector("lease://acme/**")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(everything.Contains(view), view.Contains(everything))

	_, err = fitz.ParseSelector("lease://acme/renderers/doc*")
	fmt.Println(errors.Is(err, fitz.ErrConfigInvalid))
	// Output:
	// covered: lease://acme/renderers/1
	// covered: lease://acme/encoders/1
	// true false
	// true
}
