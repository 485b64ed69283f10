package node_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// Limits for a message's way, from the POST to the settle on the embedded store with RabbitMQ,
// and for a cancel: whoever changes a way must know these functions. The numbers go down, and up
// only for what every request newly needs, like the door, what an id may be, what Expect and
// If-Match ask, and the log of attempts. Functions that an idle node enters, and short ones, do
// not count.
const (
	wayFilesMax, wayFunctionsMax       = 82, 215
	cancelFilesMax, cancelFunctionsMax = 30, 61
	spineMax                           = 12
	shortLines                         = 5
)

// TestTheWay sends messages through a running node and records which functions they enter:
// those that docs/a-message.md lists must be among them.
func TestTheWay(t *testing.T) {
	program, out := filepath.Join(t.TempDir(), "way"), t.TempDir()
	run(t, "go", "build", "-cover", "-covermode=atomic", "-coverpkg="+module+"/...", "-o", program, "./testdata/way")
	run(t, program, "-rabbitmq", rabbitmqtest.URL(t), "-out", out)
	parts := map[string]functions{}
	for _, part := range []string{"schedule", "deliver", "cancel"} {
		every, _ := readPart(t, filepath.Join(out, part))
		parts[part] = every
	}
	_, idle := readPart(t, filepath.Join(out, "idle"))
	hold := func(what string, way functions, filesMax, functionsMax int) {
		files := map[string]bool{}
		for f := range way {
			files[f.file] = true
		}
		t.Logf("%s takes %d functions in %d files", what, len(way), len(files))
		if len(way) > functionsMax || len(files) > filesMax {
			t.Errorf("%s takes %d functions in %d files: at most %d in %d", what, len(way), len(files), functionsMax, filesMax)
		}
	}
	way := maps.Clone(parts["schedule"])
	maps.Copy(way, parts["deliver"].without(idle))
	hold("a message", way, wayFilesMax, wayFunctionsMax)
	hold("a cancel", parts["cancel"], cancelFilesMax, cancelFunctionsMax)

	page, err := os.ReadFile("../docs/a-message.md")
	if err != nil {
		t.Fatal(err)
	}
	spine := regexp.MustCompile("(?m)^\\d+\\. `([\\w.]+)` in `([\\w/.]+)`").FindAllStringSubmatch(string(page), -1)
	if len(spine) == 0 || len(spine) > spineMax {
		t.Errorf("docs/a-message.md lists %d functions: 1 to %d", len(spine), spineMax)
	}
	maps.Copy(way, parts["deliver"]) // an idle node claims, too
	for _, m := range spine {
		f := function{name: m[1], file: m[2]}
		if _, ok := way[f]; !ok {
			t.Errorf("docs/a-message.md lists %s in %s, which a message does not enter", f.name, f.file)
		}
	}
}

const module = "github.com/postdate/postdate"

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(patient(t), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// function is one of this module, by its receiver and name and by its file from the root.
type function struct{ name, file string }

type functions map[function]struct{}

func (all functions) without(others functions) functions {
	left := functions{}
	for f := range all {
		if _, ok := others[f]; !ok {
			left[f] = struct{}{}
		}
	}
	return left
}

// readPart returns the functions that every round of a part entered, and those that any did:
// occasional work of the node is in some rounds only.
func readPart(t *testing.T, folder string) (every, some functions) {
	t.Helper()
	rounds, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(rounds) < 2 {
		t.Fatalf("%s has %d rounds (%v)", folder, len(rounds), err)
	}
	times := map[function]int{}
	for _, round := range rounds[1:] { // the first opens connections, and looks up queues
		profile := filepath.Join(t.TempDir(), "profile")
		run(t, "go", "tool", "covdata", "textfmt", "-i="+round, "-o="+profile)
		for f := range entered(t, profile) {
			times[f]++
		}
	}
	every, some = functions{}, functions{}
	for f, n := range times {
		some[f] = struct{}{}
		if n == len(rounds)-1 {
			every[f] = struct{}{}
		}
	}
	return every, some
}

// entered returns the functions of which a profile counts a block. A line of it is
// file:line.column,line.column statements count.
func entered(t *testing.T, profile string) functions {
	t.Helper()
	text, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	found := functions{}
	for _, block := range regexp.MustCompile(`(?m)^`+module+`/(.+):(\d+)\..* [1-9]\d*$`).FindAllStringSubmatch(string(text), -1) {
		line, err := strconv.Atoi(block[2])
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range spansOf(t, block[1]) {
			if s.from <= line && line <= s.to && s.to-s.from > shortLines {
				found[s.function] = struct{}{}
			}
		}
	}
	return found
}

// span is the place of a function in its file.
type span struct {
	function
	from, to int // lines
}

var spans = map[string][]span{}

func spansOf(t *testing.T, file string) []span {
	t.Helper()
	if known, ok := spans[file]; ok || strings.HasPrefix(file, "node/testdata/") {
		return known
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, filepath.Join("..", file), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range tree.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			name = receiver(f.Recv.List[0].Type) + "." + name
		}
		spans[file] = append(spans[file], span{function{name, file}, set.Position(f.Pos()).Line, set.Position(f.End()).Line})
	}
	return spans[file]
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
