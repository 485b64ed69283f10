package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed switches.go.txt
var switches string

const module = "github.com/postdate/postdate"

// listed is a package as go list has it.
type listed struct {
	Dir, ImportPath, Export string
	Standard                bool
	GoFiles                 []string
	TestGoFiles             []string
	XTestGoFiles            []string
}

// bench has everything that is needed to try mutants.
type bench struct {
	f       flags
	dir     string // for what is built
	mutants []mutant
	dirs    []string          // the packages'
	overlay map[string]string // the texts of files with switches, by the files' places
	trees   map[string]string // per package: a hash of what its results depend on

	tests  map[string][]check // by package
	worlds check
	trace  string // of the simulator with all switches off
}

// newBench finds the mutants of the packages that were asked for.
func newBench(f flags) (*bench, error) {
	b := &bench{f: f, overlay: map[string]string{}, trees: map[string]string{}, tests: map[string][]check{}}
	for _, p := range packages {
		if _, err := os.Stat(p.dir); err == nil && (f.only == "" ||
			slices.Contains(strings.Split(f.only, ","), p.dir)) {
			b.dirs = append(b.dirs, p.dir)
		}
	}
	if f.only != "" && len(b.dirs) != len(strings.Split(f.only, ",")) {
		return nil, fmt.Errorf("of the packages in -only %s, the pure ones here are %v", f.only, b.dirs)
	}
	arguments := []string{"list", "-export", "-deps",
		"-json=Dir,ImportPath,Export,Standard,GoFiles,TestGoFiles,XTestGoFiles", "./cmd/sim", "./cmd/mutants"}
	for _, dir := range b.dirs {
		arguments = append(arguments, "./"+dir) // the simulator need not use it
	}
	out, err := exec.Command("go", arguments...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	all := map[string]listed{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		all[p.ImportPath] = p
	}
	for _, p := range packages {
		if !slices.Contains(b.dirs, p.dir) {
			continue
		}
		if err := b.find(all, all[module+"/"+p.dir], p.dir, p.skip); err != nil {
			return nil, err
		}
	}
	for _, dir := range b.dirs {
		b.overlay[filepath.Join(all[module+"/"+dir].Dir, "mutants_switches.go")] = withSwitches(path.Base(dir),
			len(b.mutants))
	}
	among := func(string) bool { return true }
	if f.among != "" {
		text, err := os.ReadFile(f.among)
		if err != nil {
			return nil, err
		}
		among = func(name string) bool { return strings.Contains("\n"+string(text)+"\n", "\n"+name+"\n") }
	}
	b.mutants = slices.DeleteFunc(b.mutants,
		func(m mutant) bool { return !strings.Contains(m.Name(), f.match) || !among(m.Name()) })
	return b, b.hash(all)
}

// withSwitches is the file that a package needs beside those with switches.
func withSwitches(name string, mutants int) string {
	return strings.NewReplacer("package PACKAGE", "package "+name, "COUNT", fmt.Sprint(mutants)).Replace(switches)
}

// find finds the mutants of a package.
func (b *bench) find(all map[string]listed, p listed, dir string, skip []string) error {
	set, texts := token.NewFileSet(), map[string]string{}
	var trees []*ast.File
	for _, name := range p.GoFiles {
		text, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return err
		}
		tree, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		trees, texts[name] = append(trees, tree), string(text)
	}
	exports := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser,
		error) {
		return os.Open(all[path].Export)
	})
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Defs: map[*ast.Ident]types.Object{}}
	if _, err := (&types.Config{Importer: exports}).Check(p.ImportPath, set, trees, info); err != nil {
		return err
	}
	for i, name := range p.GoFiles {
		if slices.Contains(skip, name) {
			continue
		}
		f := &finder{set: set, info: info, text: texts[name], next: len(b.mutants) + 1,
			file: mutant{Package: dir, File: path.Join(dir, name)}}
		b.overlay[filepath.Join(p.Dir, name)] = f.find(trees[i])
		b.mutants = append(b.mutants, f.found...)
	}
	return nil
}

// hash makes the hashes of what the packages' results depend on: the simulator and its
// worlds, this command, and the package's tests.
func (b *bench) hash(all map[string]listed) error {
	var files []string
	for _, p := range all {
		if !p.Standard && strings.HasPrefix(p.ImportPath, module) {
			for _, name := range p.GoFiles {
				files = append(files, filepath.Join(p.Dir, name))
			}
		}
	}
	for _, dir := range b.dirs {
		p := all[module+"/"+dir]
		own := append([]string{"go.mod"}, files...)
		for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			own = append(own, filepath.Join(p.Dir, name))
		}
		slices.Sort(own)
		h := sha256.New()
		fmt.Fprintln(h, b.f.hours, b.f.simSeed, switches)
		for _, name := range own {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			fmt.Fprintln(h, filepath.Base(name), len(text))
			h.Write(text)
		}
		b.trees[dir] = fmt.Sprintf("%x", h.Sum(nil))[:12]
	}
	return nil
}

// build builds the programs with the switches, and runs them with all of them off:
// they must pass, and say what they reach.
func (b *bench) build(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	replace := map[string]string{}
	for place, text := range b.overlay {
		name := filepath.Join(b.dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
		replace[place] = name
	}
	overlay := filepath.Join(b.dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return err
	}
	goTool := func(arguments ...string) error {
		if out, err := exec.CommandContext(ctx, "go", arguments...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(arguments, " "), err, out)
		}
		return nil
	}
	if err := goTool("build", "-overlay", overlay, "-o", b.program(""), "./cmd/sim"); err != nil {
		return err
	}
	for _, dir := range b.dirs {
		if err := goTool("test", "-c", "-vet=off", "-overlay", overlay, "-o", b.program(dir), "./"+dir); err != nil {
			return err
		}
	}
	return b.measureAll(ctx)
}

// program is where the program lies that tests a package; "": the simulator.
func (b *bench) program(dir string) string {
	return filepath.Join(b.dir, strings.ReplaceAll(cmp.Or(dir, "cmd/sim"), "/", "-"))
}
