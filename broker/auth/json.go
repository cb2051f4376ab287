package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"
)

var errJSON = errors.New("not a JSON object of the form that is accepted")

// decodeObject reads one JSON object, and nothing else. Two members of one name, at any level, are refused, because readers differ in
// which one they take; so is text that is not UTF-8, which a reader would have to change. The object itself is level 1 of at most depth
// levels. Numbers stay text. The text is bounded by the caller.
func decodeObject(text []byte, depth int64) (map[string]any, error) {
	if !utf8.Valid(text) || !json.Valid(text) {
		return nil, errJSON
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	value, err := decodeValue(d, depth)
	if err != nil {
		return nil, err
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, errJSON
	}
	return object, nil
}

// decodeValue reads the next value: an object, an array, or something that has no levels below it.
func decodeValue(d *json.Decoder, depth int64) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	delimiter, nested := token.(json.Delim)
	if !nested {
		return token, nil
	}
	if depth <= 0 {
		return nil, errJSON
	}
	if delimiter == '{' {
		return decodeMembers(d, depth)
	}
	array := []any{}
	for d.More() {
		value, err := decodeValue(d, depth-1)
		if err != nil {
			return nil, err
		}
		array = append(array, value)
	}
	_, err = d.Token() // the closing bracket
	return array, err
}

func decodeMembers(d *json.Decoder, depth int64) (any, error) {
	object := map[string]any{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, ok := name.(string)
		if _, twice := object[key]; twice || !ok {
			return nil, errJSON
		}
		if object[key], err = decodeValue(d, depth-1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token() // the closing brace
	return object, err
}
