package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postdate/postdate"
)

// size is a flag's value in bytes, written like 65536 or 64KiB.
type size int64

// sizeMax is the largest size.
const sizeMax = 64 << 30

var _ pflag.Value = (*size)(nil)

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

// Set parses a size of at most sizeMax.
func (s *size) Set(text string) error {
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(text, unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > sizeMax/unit.bytes {
			return fmt.Errorf("%q is not a size", text)
		}
		*s = size(n * unit.bytes)
		return nil
	}
	return nil
}

// String returns the size in the largest unit that divides it.
func (s *size) String() string {
	for _, unit := range sizeUnits[:3] {
		if n := int64(*s); n > 0 && n%unit.bytes == 0 {
			return strconv.FormatInt(n/unit.bytes, 10) + unit.suffix
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Type is the type's name in the help.
func (s *size) Type() string { return "size" }

// tenantName is a flag's value that names a tenant. Empty text is refused: it comes from a variable that
// is not set, and would mean another tenant.
type tenantName string

var _ pflag.Value = (*tenantName)(nil)

// Set takes a name.
func (t *tenantName) Set(text string) error {
	*t = tenantName(text)
	return postdate.CheckTenant(text)
}

// String returns the name.
func (t *tenantName) String() string { return string(*t) }

// Type is the type's name in the help.
func (t *tenantName) Type() string { return "string" }

// choice is a flag's value that must be one of a few words.
type choice struct {
	value   string
	allowed []string
}

var _ pflag.Value = (*choice)(nil)

// Set accepts one of the allowed words.
func (c *choice) Set(text string) error {
	if !slices.Contains(c.allowed, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(c.allowed, ", "))
	}
	c.value = text
	return nil
}

func (c *choice) String() string { return c.value }

// Type lists the allowed words in the help.
func (c *choice) Type() string { return strings.Join(c.allowed, "|") }
