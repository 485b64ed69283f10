package sim

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// plantedName is the environment variable that says which bug of inSource is at work in a simulator
// that withBugs has built: its number, from 1.
const plantedName = "POSTDATE_PLANTED_BUG"

// plantedSwitch is the file that a package with bugs needs beside its own.
const plantedSwitch = `package %s

import (
	"os"
	"strconv"
)

var plantedBug, _ = strconv.Atoi(os.Getenv("` + plantedName + `"))
`

// withBugs builds the simulator with all bugs of inSource. Building takes longer than finding a bug,
// so it is built only once.
func withBugs(t *testing.T) (program string) {
	t.Helper()
	dir, replace := t.TempDir(), map[string]string{}
	standIn := func(place, text string) {
		place, err := filepath.Abs(filepath.Join("..", place))
		if err != nil {
			t.Fatal(err)
		}
		if replace[place] != "" {
			return
		}
		name := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[place] = name
	}
	for _, b := range inSource {
		text, pkg := withBugsOf(t, b.file)
		standIn(b.file, text)
		standIn(filepath.Join(filepath.Dir(b.file), "planted_bug.go"), fmt.Sprintf(plantedSwitch, pkg))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "sim")
	if out, err := exec.Command("go", "build", "-overlay", list, "-o", program, "../cmd/sim").CombinedOutput(); err != nil {
		t.Fatalf("building with the bugs: %v\n%s", err, out)
	}
	return program
}

// withBugsOf returns the text of a file with all its bugs, and the name of its package. The changed
// body of a function stands in front of the body that is there, and is run instead if it is its turn.
func withBugsOf(t *testing.T, file string) (text, pkg string) {
	t.Helper()
	added := map[int]string{} // by where in the file
	for i, b := range inSource {
		if b.file != file {
			continue
		}
		before, after := changedBy(t, file, b.from, b.to)
		tree, place := parsed(t, before), strings.Index(before, b.from)
		text, pkg = before, tree.Name.Name
		for n, d := range tree.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || place < int(f.Pos())-1 || place >= int(f.End())-1 {
				continue
			}
			header, _, end := parts(before, f)
			changedHeader, body, _ := parts(after, parsed(t, after).Decls[n].(*ast.FuncDecl))
			if header != changedHeader {
				t.Fatalf("%s: %q changes more than the body of a function", file, b.from)
			}
			if f.Type.Results == nil {
				body += "\nreturn\n"
			}
			added[end] += fmt.Sprintf("\nif plantedBug == %d {%s}\n", i+1, body)
			place = -1
		}
		if place >= 0 {
			t.Fatalf("%s: %q is in no function", file, b.from)
		}
	}
	var all strings.Builder
	for i := range text {
		all.WriteString(added[i])
		all.WriteByte(text[i])
	}
	return all.String(), pkg
}

func parsed(t *testing.T, text string) *ast.File {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// parts returns a function's text up to its body, its body without the braces, and where that begins. Its
// file is the only one of its set, so positions count from 1.
func parts(text string, f *ast.FuncDecl) (header, body string, begins int) {
	begins = int(f.Body.Lbrace)
	return text[f.Pos()-1 : begins], text[begins : f.Body.Rbrace-1], begins
}
