package postdate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// These tests enforce the layout that ARCHITECTURE.md describes: who may import whom,
// what must be pure, how long things may be, and that everything says what it is
// for. A rule is changed there and here, in one commit that says why.

const module = "github.com/postdate/postdate"

const (
	fileLinesMax     = 500 // tests may be longer
	functionLinesMax = 70
	columnsMax       = 120 // a tab counts as four; tests, and lines with a raw string, may be wider
)

// mayImport says which packages of this module a room may import, except in tests.
// A room is a folder, and "." is the root. "*" means every package but a command. A
// folder without an entry has that of the folder above.
var mayImport = map[string][]string{
	".":                               {},
	"bucket":                          {"."},
	"ring":                            {"."},
	"recurrence":                      {"."},
	"membership":                      {"."},
	"store":                           {".", "bucket"},
	"store/pebble":                    {".", "bucket", "store"},
	"store/mongo":                     {".", "bucket", "store", "internal/certs"},
	"store/mongo/mongotest":           {"internal/proctest"},
	"store/mongo/routertest":          {"store/mongo/mongotest"},
	"store/storetest":                 {".", "bucket", "store", "internal/testrun"},
	"publisher":                       {".", "publisher", "internal/certs"}, // a new one needs no entry
	"publisher/publishertest":         {".", "publisher", "internal/certs", "internal/testrun"},
	"publisher/rabbitmq":              {".", "publisher", "internal/amqp", "internal/amqpdial", "internal/certs"},
	"publisher/rabbitmq/rabbitmqtest": {"internal/proctest"},
	"publisher/kafka/kafkatest":       {"internal/proctest"},
	"publisher/inbox":                 {".", "publisher", "store"},
	"fence":                           {".", "bucket", "store"},
	"poller":                          {".", "bucket", "fence", "recurrence", "store", "publisher", "internal/series", "internal/stats"},
	"auth":                            {".", "store", "internal/oidctest"},
	"quota":                           {".", "store", "internal/series"},
	"api":                             {".", "auth", "bucket", "console", "quota", "recurrence", "store", "internal/amqp", "internal/series", "internal/stats", "internal/tracing"},
	"api/ingest":                      {".", "api", "recurrence", "store", "internal/amqp", "internal/tracing"},
	"api/ingest/rabbitmq":             {".", "api/ingest", "internal/amqp", "internal/amqpdial", "internal/certs"},
	"api/ingest/kafka":                {".", "api/ingest"},
	"internal/amqp":                   {"."},
	"internal/amqpdial":               {},
	"internal/account":                {"internal/testrun"},
	"internal/series":                 {},
	"internal/stats":                  {".", "internal/series"},
	"internal/testrun":                {},
	"internal/tracing":                {"."},
	"internal/certs":                  {},
	"internal/certtest":               {"internal/certs"},
	"internal/oidctest":               {},
	"internal/proctest":               {},
	"internal/nodetest":               {"client", "internal/account"},
	"internal/benchtest":              {},
	"clients":                         {},
	"console":                         {},
	"client":                          {"."},
	"node":                            {"*"},
	"node/machine":                    {".", "bucket", "fence", "poller", "ring", "store"},
	"sim":                             {"*"},
	"cmd":                             {"*"},
	"bench":                           {"client"},
}

// pure are the files that decide. A simulator runs them, so they start no goroutine,
// do no I/O and read no clock. A folder means all of its files.
var pure = []string{
	".", "bucket", "ring", "fence", "recurrence",
	"node/machine/machine.go", "node/machine/share.go", "node/machine/broker.go", "node/machine/expiry.go",
	"poller/poller.go", "poller/agenda.go", "poller/lane.go", "poller/scan.go", "poller/hand.go", "poller/channel.go",
	"poller/room.go", "poller/behind.go", "poller/unheard.go", "poller/limit.go", "poller/settle.go",
	"poller/park.go", "poller/wait.go", "poller/leave.go", "poller/view.go", "poller/series.go",
	"auth/identity.go", "auth/book.go", "quota/ledger.go", "api/ingest/decide.go", "cmd/retest/results.go",
}

// pureImports are the packages outside this module that a pure file may use.
var pureImports = []string{
	"bytes", "cmp", "container/heap", "crypto/sha256", "crypto/subtle", "encoding/binary", "errors", "fmt", "maps", "math", "math/bits", "regexp",
	"slices", "sort", "strconv", "strings", "time", "time/tzdata", "unicode/utf8", "github.com/buraksezer/consistent",
	"github.com/netresearch/go-cron", "github.com/spaolacci/murmur3",
}

// clocks are the functions of package time that read a clock or wait for one.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// badNames are package names that say nothing about what is inside.
var badNames = []string{"util", "utils", "common", "types", "model", "models", "helper", "helpers", "misc", "base"}

// selfEvident methods need no comment: their interface says what they do.
var selfEvident = []string{"String", "Error", "Unwrap", "Event", "Effect"}

// source is one parsed Go file.
type source struct {
	path   string // with slashes, from the root
	folder string
	test   bool
	text   []string // its lines
	set    *token.FileSet
	tree   *ast.File
}

func (s *source) at(n ast.Node) token.Position { return s.set.Position(n.Pos()) }

// files lists the checkout's files with this ending, except hidden ones, test data, and what npm installed.
func files(t *testing.T, ending string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != "." && (d.Name()[0] == '.' || d.Name() == "testdata" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(p, ending) {
			paths = append(paths, filepath.ToSlash(p))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func sources(t *testing.T) (all []*source) {
	t.Helper()
	for _, p := range files(t, ".go") {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		s := &source{path: p, folder: path.Dir(p), test: strings.HasSuffix(p, "_test.go"), text: strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), set: token.NewFileSet()}
		if s.tree, err = parser.ParseFile(s.set, p, text, parser.ParseComments); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

func (s *source) imports() (paths []string) {
	for _, i := range s.tree.Imports {
		paths = append(paths, strings.Trim(i.Path.Value, `"`))
	}
	return paths
}

// room returns the name that mayImport uses for a package of this module.
func room(imported string) (name string, ours bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// allowed returns the entry that applies to a folder.
func allowed(folder string) (rooms []string, ok bool) {
	for f := folder; ; f = path.Dir(f) {
		if rooms, ok = mayImport[f]; ok && (f != "." || folder == ".") {
			return rooms, true
		}
		if f == "." {
			return nil, false
		}
	}
}

// knowsAll says whether a package may import every other. No other package imports these,
// not even in its tests. The exception is client, which is not part of the node but is
// imported by its users: its tests start whole nodes.
func knowsAll(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	return slices.Contains(mayImport[top], "*")
}

func TestImportDirections(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			for _, imported := range s.imports() {
				if name, ours := room(imported); ours && knowsAll(name) && !knowsAll(s.folder) && s.folder != "client" {
					t.Errorf("%s imports %s, which knows everybody: put what both need below them, like internal/proctest", s.path, imported)
				}
			}
			continue
		}
		rooms, ok := allowed(s.folder)
		if !ok {
			t.Errorf("%s: the folder %s is no package of ARCHITECTURE.md: find its place there, and give it an entry in mayImport", s.path, s.folder)
			continue
		}
		for _, imported := range s.imports() {
			name, ours := room(imported)
			inside := strings.HasPrefix(name, s.folder+"/internal/")
			switch {
			case !ours && s.folder == "." && strings.Contains(strings.Split(imported, "/")[0], "."):
				t.Errorf("%s imports %s: the root package imports only the standard library", s.path, imported)
			case !ours || inside || slices.Contains(rooms, name):
			case slices.Contains(rooms, "*") && !strings.HasPrefix(name, "cmd/"):
			default:
				t.Errorf("%s imports %s: %s may import only %v of this module", s.path, imported, s.folder, rooms)
			}
		}
	}
}

// isPure says whether s is one of the pure files.
func isPure(s *source) bool {
	return !s.test && (slices.Contains(pure, s.folder) || slices.Contains(pure, s.path))
}

// TestOneThread checks that the packages which .ci/test runs without the race detector start no goroutine themselves. The
// tests that run beside each other in sim/source_test.go only wait for processes.
func TestOneThread(t *testing.T) {
	script, err := os.ReadFile(".ci/test")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\s*plain=\((.+)\)$`).FindSubmatch(script)
	if line == nil {
		t.Fatal(".ci/test names no packages that it runs without the race detector")
	}
	starts := []string{"Go", "AfterFunc", "Parallel", "Coalesce", "ReadEach"}
	found := map[string]bool{}
	plain := strings.Fields(strings.ReplaceAll(string(line[1]), "./", ""))
	for _, s := range sources(t) {
		if !slices.Contains(plain, s.folder) || s.path == "sim/source_test.go" {
			continue
		}
		found[s.folder] = true
		ast.Inspect(s.tree, func(n ast.Node) bool {
			_, goes := n.(*ast.GoStmt)
			if called, is := n.(*ast.SelectorExpr); goes || is && slices.Contains(starts, called.Sel.Name) {
				t.Errorf("%s starts a goroutine: run %s with the race detector", s.at(n), s.folder)
			}
			return true
		})
	}
	if len(found) != len(plain) {
		t.Errorf("of %v, only %v are there", plain, slices.Sorted(maps.Keys(found)))
	}
}

func TestWhatDecidesIsPure(t *testing.T) {
	found := map[string]bool{}
	for _, s := range sources(t) {
		if !isPure(s) {
			continue
		}
		found[s.folder], found[s.path] = true, true
		for _, imported := range s.imports() {
			if _, ours := room(imported); !ours && !slices.Contains(pureImports, imported) {
				t.Errorf("%s imports %s: what decides must be pure", s.path, imported)
			}
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine: what decides must be pure; put it into the loop that acts", s.at(n))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clocks, n.Sel.Name) {
					t.Errorf("%s uses time.%s: what decides gets a postdate.Now", s.at(n), n.Sel.Name)
				}
			}
			return true
		})
	}
	for _, p := range pure {
		if strings.HasSuffix(p, ".go") && !found[p] {
			t.Errorf("%s is to be pure and is not there: was it renamed?", p)
		}
	}
}

func TestNothingIsTooLong(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test && len(s.text) > fileLinesMax {
			t.Errorf("%s has %d lines: at most %d; a file is one thing", s.path, len(s.text), fileLinesMax)
		}
		for i, line := range s.text {
			if !s.test && !strings.Contains(line, "`") && len(strings.ReplaceAll(line, "\t", "    ")) > columnsMax {
				t.Errorf("%s:%d is wider than %d columns", s.path, i+1, columnsMax)
			}
		}
		for _, d := range s.tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if lines := s.set.Position(f.End()).Line - s.at(f.Name).Line + 1; lines > functionLinesMax {
				t.Errorf("%s: %s has %d lines: at most %d", s.at(f), f.Name.Name, lines, functionLinesMax)
			}
		}
	}
}

func TestEverythingSaysWhatItIsFor(t *testing.T) {
	packageDocs := map[string]int{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		packageDocs[s.folder] += 0
		if s.tree.Doc != nil {
			packageDocs[s.folder]++
		}
		if name := s.tree.Name.Name; slices.Contains(badNames, name) || slices.Contains(badNames, path.Base(s.folder)) {
			t.Errorf("%s: a package named %s says nothing about what is inside", s.path, name)
		}
		for _, d := range s.tree.Decls {
			s.checkDocs(t, d)
		}
	}
	for folder, docs := range packageDocs {
		if docs != 1 {
			t.Errorf("the package in %s has %d package comments: one file says what it is for and what it promises", folder, docs)
		}
	}
}

// checkDocs requires a comment for each exported name of a declaration. One above a
// group of constants or variables counts for the whole group.
func (s *source) checkDocs(t *testing.T, d ast.Decl) {
	missing := func(n *ast.Ident) {
		t.Errorf("%s: %s is exported and has no comment", s.at(n), n.Name)
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.Name == "init" {
			t.Errorf("%s: an init function: nothing registers itself; the node wires everything", s.at(d))
		}
		known := d.Recv != nil && (slices.Contains(selfEvident, d.Name.Name) || !receiver(d).IsExported())
		if d.Name.IsExported() && d.Doc == nil && !known && s.tree.Name.Name != "main" {
			missing(d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() && spec.Doc == nil && spec.Comment == nil && (d.Doc == nil || len(d.Specs) > 1) {
					missing(spec.Name)
				}
			case *ast.ValueSpec:
				for _, n := range spec.Names {
					if n.IsExported() && spec.Doc == nil && spec.Comment == nil && d.Doc == nil {
						missing(n)
					}
				}
			}
		}
	}
}

// receiver returns the name of a method's type.
func receiver(d *ast.FuncDecl) *ast.Ident {
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x
		default:
			return ast.NewIdent("?")
		}
	}
}

var (
	docLink  = regexp.MustCompile(`\]\(([^)#:\n]+)(#[^)]*)?\)`)
	docFile  = regexp.MustCompile("`([a-z][a-z0-9_/]*/[a-z0-9_]+\\.(?:go|json|txt))`")
	docTest  = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*)")
	docPlace = regexp.MustCompile("`(?:[A-Za-z]+\\.)?([A-Za-z]+)`\\s+in\\s+`([a-z][a-z0-9_/]*\\.go)`") // a name, and the file in which it stands
)

// declared returns the names that a file declares, including methods.
func (s *source) declared() map[string]bool {
	names := map[string]bool{}
	for _, d := range s.tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names[d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names[spec.Name.Name] = true
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						names[n.Name] = true
					}
				}
			}
		}
	}
	return names
}

// TestDocumentsNameWhatExists checks the documents against the code: the files that they
// link or name exist, so do the tests that they cite for a promise, and a name that they
// place in a file is declared there.
func TestDocumentsNameWhatExists(t *testing.T) {
	tests, declared := map[string]bool{}, map[string]map[string]bool{}
	for _, s := range sources(t) {
		declared[s.path] = s.declared()
		if s.test {
			maps.Copy(tests, declared[s.path])
		}
	}
	exists := func(p string) bool { _, err := os.Stat(p); return err == nil }
	for _, doc := range files(t, ".md") {
		b, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for _, kind := range []struct {
			pattern *regexp.Regexp
			there   func(m []string) bool
		}{
			{docLink, func(m []string) bool { return exists(path.Join(path.Dir(doc), m[1])) }},
			{docFile, func(m []string) bool { return exists(m[1]) }},
			{docTest, func(m []string) bool { return tests[m[1]] }},
			{docPlace, func(m []string) bool { return declared[m[2]][m[1]] }},
		} {
			for _, m := range kind.pattern.FindAllStringSubmatch(text, -1) {
				if !kind.there(m) {
					line := 1 + strings.Count(text[:strings.Index(text, m[0])], "\n")
					t.Errorf("%s:%d says %q, which is not there", doc, line, m[0])
				}
			}
		}
	}
}

// TestEveryDependencyHasAReason requires ARCHITECTURE.md to name each direct requirement
// of go.mod, and of that in bench, with the reason for its choice.
func TestEveryDependencyHasAReason(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	reasons := read("ARCHITECTURE.md")
	direct := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`)
	for _, m := range direct.FindAllStringSubmatch(read("go.mod")+read("bench/go.mod"), -1) {
		if name := strings.TrimPrefix(m[1], "github.com/"); m[1] != module && !strings.Contains(reasons, "`"+name+"`") {
			t.Errorf("ARCHITECTURE.md does not say why %s", m[1])
		}
	}
}

// TestEveryMetricIsDocumented requires the operator's document to name each of the
// product's metrics.
func TestEveryMetricIsDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	series := regexp.MustCompile(`^"(postdate_[a-z_]+)"$`)
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			l, ok := n.(*ast.BasicLit)
			if !ok {
				return true
			}
			if m := series.FindStringSubmatch(l.Value); m != nil && !strings.Contains(string(text), "`"+m[1]+"`") {
				t.Errorf("%s: docs/operations.md does not say what %s is", s.at(l), m[1])
			}
			return true
		})
	}
}

// TestEveryAttributeIsDocumented requires docs/traces.md to name each attribute of a span, and no others.
func TestEveryAttributeIsDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/traces.md")
	if err != nil {
		t.Fatal(err)
	}
	const name = "(?:http|url|server|client|user_agent|error|messaging|postdate)\\.[a-z_.]+[a-z]"
	known, said := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile("`("+name+")`").FindAllStringSubmatch(string(text), -1) {
		said[m[1]] = true
	}
	for _, file := range []string{"api/traces.go", "api/ingest/traces.go", "node/deliveries.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(`+name+`)"`).FindAllStringSubmatch(string(source), -1) {
			if known[m[1]] = true; !said[m[1]] {
				t.Errorf("docs/traces.md does not say what %s is, which %s makes", m[1], file)
			}
		}
	}
	for name := range said {
		if !known[name] {
			t.Errorf("docs/traces.md names %s, which no span has", name)
		}
	}
}
