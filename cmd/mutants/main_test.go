package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tiny has something for each operator. Its Run says by its numbers which one is on.
const tiny = `package tiny

const three = 1 + 2

type box struct{ a, b int; on bool }

func (x *box) grow() { x.a *= 2 }

func odd(n int) bool { return n%2 == 1 }

func Run() (out []int) {
	x := &box{b: 7, on: true}
	x.grow()
	for n := 0; n < 6; n++ {
		if n == three || x.b > 100 && odd(n) {
			continue
		}
		if !odd(n) && n <= 4 { // a comment; stays
			x.a += n
		}
		x.b -= min(n, 2)
		out = append(out, n+1, x.b*2)
	}
	word := "a" + "b"
	switch {
	case odd(len(word)):
		out = append(out, -x.a)
	case x.on,
		x.a >= 6:
		out = append(out, -x.a, x.b/2, max(x.a,
			x.b, 5))
	}
	if x.on {
		x.on = false
	}
	return out
}
`

// findIn finds the mutants of a text that imports nothing.
func findIn(t *testing.T, text string) ([]mutant, string) {
	t.Helper()
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, "tiny.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	if _, err := (&types.Config{}).Check("tiny", set, []*ast.File{tree}, info); err != nil {
		t.Fatal(err)
	}
	f := &finder{set: set, info: info, text: text, next: 1, file: mutant{Package: "tiny", File: "tiny/tiny.go"}}
	switched := f.find(tree)
	return f.found, switched
}

func TestFind(t *testing.T) {
	found, _ := findIn(t, tiny)
	var got []string
	for i, m := range found {
		if m.id != i+1 {
			t.Errorf("mutant %d has the number %d", i+1, m.id)
		}
		got = append(got, fmt.Sprintf("%s %s: %s => %s", m.Operator, m.Func, m.Old, m.New))
	}
	want := []string{
		"statement box.grow: x.a *= 2 => ",
		"negation odd: func odd(n int) bool { return n%2 == 1 } => func odd(n int) bool { return n%2 != 1 }",
		"arithmetic odd: func odd(n int) bool { return n%2 == 1 } => func odd(n int) bool { return n*2 == 1 }",
		"constant Run: x := &box{b: 7, on: true} => x := &box{b: 7, on: false}",
		"statement Run: x.grow() => ",
		"negation Run: for n := 0; n < 6; n++ { => for n := 0; n >= 6; n++ {",
		"boundary Run: for n := 0; n < 6; n++ { => for n := 0; n <= 6; n++ {",
		"assignment Run: for n := 0; n < 6; n++ { => for n := 0; n < 6; n-- {",
		"logical Run: if n == three || x.b > 100 && odd(n) { => if n == three && x.b > 100 && odd(n) {",
		"negation Run: if n == three || x.b > 100 && odd(n) { => if n != three || x.b > 100 && odd(n) {",
		"logical Run: if n == three || x.b > 100 && odd(n) { => if n == three || x.b > 100 || odd(n) {",
		"negation Run: if n == three || x.b > 100 && odd(n) { => if n == three || x.b <= 100 && odd(n) {",
		"boundary Run: if n == three || x.b > 100 && odd(n) { => if n == three || x.b >= 100 && odd(n) {",
		"negation Run: if n == three || x.b > 100 && odd(n) { => if n == three || x.b > 100 && !odd(n) {",
		"loop Run: continue => break",
		"logical Run: if !odd(n) && n <= 4 { // a comment; stays => if !odd(n) || n <= 4 { // a comment; stays",
		"not Run: if !odd(n) && n <= 4 { // a comment; stays => if odd(n) && n <= 4 { // a comment; stays",
		"negation Run: if !odd(n) && n <= 4 { // a comment; stays => if !odd(n) && n > 4 { // a comment; stays",
		"boundary Run: if !odd(n) && n <= 4 { // a comment; stays => if !odd(n) && n < 4 { // a comment; stays",
		"statement Run: x.a += n => ",
		"assignment Run: x.a += n => x.a -= n",
		"statement Run: x.b -= min(n, 2) => ",
		"assignment Run: x.b -= min(n, 2) => x.b += min(n, 2)",
		"min or max Run: x.b -= min(n, 2) => x.b -= max(n, 2)",
		"statement Run: out = append(out, n+1, x.b*2) => ",
		"arithmetic Run: out = append(out, n+1, x.b*2) => out = append(out, n-1, x.b*2)",
		"arithmetic Run: out = append(out, n+1, x.b*2) => out = append(out, n+1, x.b/2)",
		"negation Run: case odd(len(word)): => case !odd(len(word)):",
		"statement Run: out = append(out, -x.a) => ",
		"negative Run: out = append(out, -x.a) => out = append(out, x.a)",
		"negation Run: case x.on, => case !x.on,",
		"negation Run: x.a >= 6: => x.a < 6:",
		"boundary Run: x.a >= 6: => x.a > 6:",
		"statement Run: out = append(out, -x.a, x.b/2, max(x.a, x.b, 5)) => ",
		"negative Run: out = append(out, -x.a, x.b/2, max(x.a, => out = append(out, x.a, x.b/2, max(x.a,",
		"arithmetic Run: out = append(out, -x.a, x.b/2, max(x.a, => out = append(out, -x.a, x.b*2, max(x.a,",
		"min or max Run: out = append(out, -x.a, x.b/2, max(x.a, => out = append(out, -x.a, x.b/2, min(x.a,",
		"negation Run: if x.on { => if !x.on {",
		"statement Run: x.on = false => ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// variants builds a program of a text with its switches, and of one text for each of its
// mutants, and gives what runs it: which text, with which switch on.
func variants(t *testing.T, found []mutant, switched string) (run func(which string, id int) string, reached func() []string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	imports, runs := "", ""
	add := func(which, text string) {
		write(which+"/tiny.go", text)
		imports += fmt.Sprintf("import %s \"x/%s\"\n", which, which)
		runs += fmt.Sprintf("case %q: fmt.Println(%s.Run())\n", which, which)
	}
	add("m0", tiny)
	for _, m := range found {
		old := m.Old
		if m.New == "" && strings.Contains(old, "max(") { // it stands on two lines
			old = "out = append(out, -x.a, x.b/2, max(x.a,\n\t\t\tx.b, 5))"
		}
		if strings.Count(tiny, "\t"+old+"\n") != 1 && strings.Count(tiny, old) != 1 {
			t.Fatalf("%q is not there once", old)
		}
		add(fmt.Sprint("m", m.id), strings.Replace(tiny, old, m.New, 1))
	}
	add("switched", switched)
	write("switched/switches.go", withSwitches("tiny", len(found)))
	write("go.mod", "module x\n\ngo 1.26\n")
	write("main.go", "package main\nimport \"fmt\"\nimport \"os\"\n"+imports+"func main() {\nswitch os.Args[1] {\n"+runs+"}\n}\n")
	build := exec.Command("go", "build", "-o", "x", ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, switched)
	}
	list := filepath.Join(dir, "reached")
	run = func(which string, id int) string {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "x"), which)
		cmd.Env = append(os.Environ(), fmt.Sprintf("POSTDATE_MUTANT=%d", id), "POSTDATE_MUTANTS_REACHED="+list)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "it panics"
		}
		return string(out)
	}
	return run, func() []string {
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(text))
	}
}

// TestSwitches compares a text with its switches with texts that were changed for each
// mutant: with a switch on, the program does what its mutant does, and with none on what
// the text does. What does something else counts as reached.
func TestSwitches(t *testing.T) {
	found, switched := findIn(t, tiny)
	run, reached := variants(t, found, switched)
	right := run("m0", 0)
	if got := run("switched", 0); got != right {
		t.Errorf("with all switches off: %s, want %s", got, right)
	}
	if got := run("switched", -1); got != right {
		t.Errorf("while it notes what is reached: %s, want %s", got, right)
	}
	ids, others := reached(), 0
	for _, m := range found {
		if strings.Contains(m.New, "n--") {
			continue // never ends
		}
		got, want := run("switched", m.id), run(fmt.Sprint("m", m.id), 0)
		if got != want {
			t.Errorf("%s: with its switch on: %s, want %s", m.Name(), got, want)
		}
		if want == right {
			continue
		}
		others++
		if !slices.Contains(ids, fmt.Sprint(m.id)) {
			t.Errorf("%s: does something else and counts as not reached", m.Name())
		}
	}
	if others < 25 {
		t.Errorf("only %d of %d mutants do something else: the text is too weak", others, len(found))
	}
}

func TestTheDocumentNamesMutants(t *testing.T) {
	m := mutant{File: "a/b.go", Func: "f", Old: "case x: y()", New: "case !x: y()", Nth: 1}
	second, longer := m, m
	second.Nth, longer.New = 2, "case !x: y() // `: z"
	other := mutant{File: "a/c/b.go", Func: "f", Old: "y()", Nth: 1}
	all := itemsIn("# Title\n\n- " + m.Name() + ": a reason: that is why\n- " + other.Name() + "\n- something else\n")
	if !all.name(m) || !all.name(other) {
		t.Errorf("%q does not name %s and %s", all, m.Name(), other.Name())
	}
	if all.name(second) || all.name(longer) {
		t.Error("one mutant stands for another one")
	}
	b := &bench{dirs: []string{"a"}, mutants: []mutant{m}}
	if gone := all.gone(b); len(gone) > 0 {
		t.Errorf("gone are %q", gone)
	}
	b.mutants = []mutant{second}
	if gone := all.gone(b); len(gone) != 1 || !names(gone[0], m) {
		t.Errorf("gone are %q, want %s", gone, m.Name())
	}
}

// What was kept is found again, also after a crash in the middle of a line, and a run
// goes on behind it.
func TestResultsAreKept(t *testing.T) {
	b := &bench{f: flags{cache: t.TempDir()}, dirs: []string{"x/y"}, trees: map[string]string{"x/y": "1"}}
	one := result{mutant: mutant{Package: "x/y", Old: "a", New: "b", Nth: 1}, Result: lived, InWorlds: true}
	two := result{mutant: mutant{Package: "x/y", Old: "a", Nth: 1}, Result: killedByWorlds, By: "promise 4"}
	for _, r := range []result{one, two} {
		if err := b.keep(r); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(b.file("x/y"))
	if err != nil {
		t.Fatal(err)
	}
	results, err := b.load()
	if err != nil || results[one.Name()] != one || results[two.Name()] != two {
		t.Errorf("loaded %+v, error %v", results, err)
	}
	if err := os.WriteFile(b.file("x/y"), text[:len(text)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	if results, err := b.load(); err != nil || len(results) != 1 || results[one.Name()] != one {
		t.Errorf("from a file that was cut off: %+v, error %v", results, err)
	}
	if err := b.keep(two); err != nil {
		t.Fatal(err)
	}
	if results, err := b.load(); err != nil || results[two.Name()] != two {
		t.Errorf("kept behind a line that was cut off: %+v, error %v", results, err)
	}
	b.trees["x/y"] = "2"
	if results, err := b.load(); err != nil || len(results) != 0 {
		t.Errorf("of other sources: %+v, error %v", results, err)
	}
}

func TestReportCountsUnknown(t *testing.T) {
	live := mutant{Package: "p", Old: "a", New: "b", Nth: 1}
	dead, left := mutant{Package: "p", Old: "a", New: "c", Nth: 1}, mutant{Package: "p", Old: "a", New: "d", Nth: 1}
	results := map[string]result{live.Name(): {mutant: live, Result: lived}, dead.Name(): {mutant: dead, Result: killedByTests}}
	all := []mutant{live, dead, left}
	if n := report(all, results, nil); n != 1 {
		t.Errorf("%d are unknown, want 1", n)
	}
	if n := report(all, results, items{live.Name() + ": a reason"}); n != 0 {
		t.Errorf("%d are unknown, want none", n)
	}
}

// The quick tests of a package meet a mutant together, each of the others alone, the
// quickest first; what is indented is a part of a test.
func TestByTime(t *testing.T) {
	var tests []measured
	for i, m := range []measured{{name: "TestA", seconds: 0.2}, {name: "TestB", seconds: 0.05},
		{name: "TestC", seconds: 0.1}, {name: "TestD"}} {
		m.check = check{dir: "ring", tests: "^(" + m.name + ")$", reached: map[int]bool{i: true}}
		tests = append(tests, m)
	}
	got := ""
	for _, c := range byTime("ring", tests) {
		got += fmt.Sprintln(c.tests, c.reached)
	}
	if want := "^(TestD|TestB)$ map[1:true 3:true]\n^(TestC)$ map[2:true]\n^(TestA)$ map[0:true]\n"; got != want {
		t.Errorf("the checks are:\n%swant:\n%s", got, want)
	}
}
