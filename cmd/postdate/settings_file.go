package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/spf13/pflag"
)

// entry is one key of a configuration file.
type entry struct {
	key   string
	value string // in a flag's form: commas between the items of a list
	line  int
}

// resolveFile sets flags that are not set yet from a file.
func resolveFile(flags *pflag.FlagSet, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return usagef("cannot read the configuration file: %v", err)
	}
	entries, err := parseFile(text)
	if err != nil {
		return usagef("%s: %v", path, err)
	}
	for _, e := range entries {
		where := fmt.Sprintf("%s:%d", path, e.line)
		f := flags.Lookup(e.key)
		if f == nil || e.key == "help" || e.key == configFlag {
			known := slices.DeleteFunc(flagNames(flags), func(n string) bool { return n == configFlag })
			return usagef("%s: unknown key %q%s", where, e.key, didYouMean("", nearest(e.key, known)))
		}
		if f.Changed {
			continue
		}
		if err := set(f, e.value, where+": "+e.key); err != nil {
			return err
		}
	}
	return nil
}

// parseFile parses a YAML mapping from settings to values or lists of values.
func parseFile(text []byte) ([]entry, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		// The long form quotes the lines around the error, which may contain a password.
		return nil, fmt.Errorf("it is not YAML: %s", yaml.FormatError(err, false, false))
	}
	var entries []entry
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.NullType || doc.Body.Type() == ast.CommentType {
			continue
		}
		mapping, ok := doc.Body.(ast.MapNode)
		if !ok {
			return nil, fmt.Errorf("line %d: expected settings, one a line, like \"store: pebble:./data\"",
				lineOf(doc.Body))
		}
		for pairs := mapping.MapRange(); pairs.Next(); {
			e, err := parseEntry(pairs.KeyValue())
			if err != nil {
				return nil, err
			}
			entries = append(entries, e)
		}
	}
	return entries, nil
}

func parseEntry(pair *ast.MappingValueNode) (entry, error) {
	e := entry{line: lineOf(pair.Key)}
	key, ok := scalar(pair.Key)
	if !ok {
		return e, fmt.Errorf("line %d: a key is a plain name", e.line)
	}
	e.key = key
	values := []ast.Node{pair.Value}
	if list, ok := pair.Value.(*ast.SequenceNode); ok {
		values = list.Values
	}
	var parts []string
	for _, node := range values {
		part, ok := scalar(node)
		if !ok {
			return e, fmt.Errorf("line %d: %s needs one value, or a list of values", e.line, e.key)
		}
		parts = append(parts, part)
	}
	e.value = strings.Join(parts, ",")
	return e, nil
}

// scalar returns a node's value as written: 0128 stays 0128.
func scalar(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return strings.TrimSuffix(n.Value.Value, "\n"), true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func lineOf(node ast.Node) int {
	if t := node.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}
