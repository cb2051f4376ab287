package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// licence is one that allows to hand programs out with nothing but its text beside them.
type licence struct {
	id    string // of SPDX
	terms *regexp.Regexp
}

// words makes an expression of the terms of a licence: one blank between words, "..." for whatever an author puts between, be it nothing.
func words(terms string) *regexp.Regexp {
	var b strings.Builder
	for i, word := range strings.Fields(terms) {
		switch {
		case word == "...":
			b.WriteString(`(?: .{1,400}?)?`)
			continue
		case i > 0:
			b.WriteString(" ")
		}
		b.WriteString(regexp.QuoteMeta(word))
	}
	return regexp.MustCompile(b.String())
}

const bsdTwo = `redistribution and use in source and binary forms, with or without modification, are permitted provided that the following conditions are
	met: ... redistributions of source code must retain the above copyright notice, this list of conditions and the following disclaimer. ...
	redistributions in binary form must reproduce the above copyright notice, this list of conditions and the following disclaimer in the documentation
	and/or other materials provided with the distribution.`

const iscTail = `distribute this software for any purpose with or without fee is hereby granted, provided that the above copyright notice and this
	permission notice appear in all copies.`

// licences are those that are known, the longer before one that is part of it.
var licences = []licence{
	{"Apache-2.0", words(`apache license version 2.0, january 2004 ... terms and conditions for use, reproduction, and distribution`)},
	{"Apache-2.0", words(`licensed under the apache license, version 2.0 (the "license"); you may not use this file except in compliance with the license.`)},
	{"MIT", words(`permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the
		"software"), to deal in the software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
		distribute, sublicense, and/or sell copies of the software, and to permit persons to whom the software is furnished to do so, subject to the
		following conditions: the above copyright notice and this permission notice shall be included in all copies or substantial portions of the
		software.`)},
	{"BSD-3-Clause", words(bsdTwo + ` ... neither the name of ... may be used to endorse or promote products derived from this software without
		specific prior written permission.`)},
	{"BSD-2-Clause", words(bsdTwo)},
	{"ISC", words("permission to use, copy, modify, and/or " + iscTail)},
	{"ISC", words("permission to use, copy, modify, and " + iscTail)},
}

// restrictions are words of licences that ask for more. A text that has one of them is for a person to read, whatever else it says.
var restrictions = []string{"general public license", "mozilla public license", "server side public license", "business source license",
	"commons clause", "creative commons", "eclipse public license"}

var blanks = regexp.MustCompile(`\s+`)

// identify returns the licences whose terms a text has.
func identify(text string) ([]string, error) {
	plain := strings.ToLower(blanks.ReplaceAllString(text, " "))
	for _, restriction := range restrictions {
		if strings.Contains(plain, restriction) {
			return nil, fmt.Errorf("it names a %q", restriction)
		}
	}
	var ids []string
	for _, l := range licences {
		within := l.id == "BSD-2-Clause" && slices.Contains(ids, "BSD-3-Clause")
		if !within && !slices.Contains(ids, l.id) && l.terms.MatchString(plain) {
			ids = append(ids, l.id)
		}
	}
	if ids == nil {
		return nil, fmt.Errorf("it has the terms of no licence that is known")
	}
	return ids, nil
}
