package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// mutant is one small change of a source file.
type mutant struct {
	id       int    // among all of a run, from 1
	Package  string // its folder, from the root
	File     string // from the root
	Func     string // like Machine.due; "" outside of functions
	Operator string
	Old, New string // the line where it is, before and after; no New: the statement is left out
	Nth      int    // among those of the file that are the same in all of these, from 1
}

// Name says what the mutant is without a line number, so it stays valid while lines
// move. docs/mutants.md names mutants by it.
func (m mutant) Name() string {
	to := "`" + m.New + "`"
	if m.New == "" {
		to = "left out"
	}
	name := fmt.Sprintf("`%s` `%s`: `%s` → %s", m.File, m.Func, m.Old, to)
	if m.Nth > 1 {
		name += fmt.Sprintf(" (%d)", m.Nth)
	}
	return name
}

// What a mutant has in the place of an operator or a name.
var (
	boundary = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}
	negation = map[token.Token]string{token.EQL: "!=", token.NEQ: "==", token.LSS: ">=", token.LEQ: ">",
		token.GTR: "<=", token.GEQ: "<"}
	sums     = map[token.Token]string{token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.REM: "*"}
	assigned = map[token.Token]string{token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=", token.INC: "--", token.DEC: "++"}
	logical  = map[token.Token]string{token.LAND: "||", token.LOR: "&&"}
	others   = map[string]string{"min": "max", "max": "min", "true": "false", "false": "true"}
)

// helpers are the functions of switches.go.txt, by what they do where the mutant is off.
var helpers = map[token.Token]string{
	token.LSS: "mutantLess", token.LEQ: "mutantAtMost", token.GTR: "mutantMore", token.GEQ: "mutantAtLeast",
	token.ADD: "mutantAdd", token.SUB: "mutantSub", token.MUL: "mutantMul", token.QUO: "mutantQuo",
	token.REM:        "mutantRem",
	token.ADD_ASSIGN: "mutantAdd", token.SUB_ASSIGN: "mutantSub", token.INC: "mutantAdd", token.DEC: "mutantSub",
}

// finder looks for the mutants of one file, and writes the file anew with a switch
// for each of them: with no switch on, it does what it did.
type finder struct {
	set   *token.FileSet
	info  *types.Info
	text  string
	file  mutant // what is the same for all mutants of the file
	next  int    // the next id
	found []mutant
	edits []edit
	nest  int
	stack []ast.Node
}

// edit is a piece of text to be put in at a place.
type edit struct {
	at, drop int // where, and how much of the old text goes
	sort     int
	nest     int // of what encloses a piece: grows from outside to inside
	text     string
}

// Sorts of edits, in their order at one place.
const (
	closes = iota // what a piece is enclosed in
	opens
	replaces
)

// find gives the mutants of a file, numbered from first, and its text with a switch
// for each.
func (f *finder) find(tree *ast.File) string {
	ast.Inspect(tree, func(n ast.Node) bool {
		if n == nil {
			f.stack = f.stack[:len(f.stack)-1]
			return true
		}
		if skipped(n) {
			return false
		}
		f.visit(n)
		f.stack = append(f.stack, n)
		return true
	})
	seen := map[string]int{}
	for i := range f.found {
		f.found[i].Nth = 1
		name := f.found[i].Name()
		seen[name]++
		f.found[i].Nth = seen[name]
	}
	return f.rewritten()
}

// skipped says whether nothing of n can change while the program runs.
func skipped(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.VAR
	case *ast.ArrayType, *ast.FuncType:
		return true
	}
	return false
}

func (f *finder) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.UnaryExpr:
		f.unary(n)
	case *ast.CallExpr:
		f.minOrMax(n)
	case *ast.IncDecStmt:
		f.assign(n.X, nil, n.Tok, n.TokPos)
	case *ast.AssignStmt:
		f.leaveOut(n)
		f.assign(n.Lhs[0], n.Rhs[0], n.Tok, n.TokPos)
	case *ast.ExprStmt:
		f.leaveOut(n)
	case *ast.BranchStmt:
		f.branch(n)
	}
	if e, ok := n.(ast.Expr); ok {
		f.truth(e)
	}
}

// binary changes comparisons, sums, and what joins conditions.
func (f *finder) binary(n *ast.BinaryExpr) {
	if f.constant(n) {
		return
	}
	if to, ok := negation[n.Op]; ok {
		f.negate(n, "negation", n.OpPos, n.Op.String(), to)
	}
	if to, ok := logical[n.Op]; ok {
		// By De Morgan, so that each side stands there once and is still evaluated only
		// where it was, and with the mutant where it would be.
		id := f.add("logical", n.OpPos, n.Op.String(), to)
		for _, e := range []ast.Expr{n, n.X, n.Y} {
			f.wrap(e, fmt.Sprintf("(mutantIs(%d) != (", id), "))")
		}
	}
	operator, to := "boundary", boundary[n.Op]
	if sums[n.Op] != "" && f.number(n) {
		operator, to = "arithmetic", sums[n.Op]
	}
	if to != "" {
		id := f.add(operator, n.OpPos, n.Op.String(), to)
		f.wrap(n, fmt.Sprintf("%s(%d, ", helpers[n.Op], id), ")")
		f.replace(n.OpPos, len(n.Op.String()), ",")
	}
}

func (f *finder) unary(n *ast.UnaryExpr) {
	switch {
	case f.constant(n):
	case n.Op == token.NOT:
		f.negate(n, "not", n.OpPos, "!", "")
	case n.Op == token.SUB:
		id := f.add("negative", n.OpPos, "-", "")
		f.wrap(n, fmt.Sprintf("mutantNegative(%d, ", id), ")")
		f.replace(n.OpPos, 1, "")
	}
}

// truth changes true, false, and conditions that compare nothing.
func (f *finder) truth(e ast.Expr) {
	parent := f.stack[len(f.stack)-1]
	if id, ok := e.(*ast.Ident); ok && f.info.Uses[id] != nil && f.info.Uses[id].Parent() == types.Universe &&
		(id.Name == "true" || id.Name == "false") {
		if _, assigned := parent.(*ast.AssignStmt); !assigned { // to leave that out is the same
			f.negate(id, "constant", id.Pos(), id.Name, others[id.Name])
		}
		return
	}
	switch e.(type) {
	case *ast.Ident, *ast.SelectorExpr, *ast.CallExpr, *ast.IndexExpr:
	default:
		return
	}
	condition := false
	switch p := parent.(type) {
	case *ast.IfStmt:
		condition = p.Cond == e
	case *ast.ForStmt:
		condition = p.Cond == e
	case *ast.BinaryExpr:
		condition = p.Op == token.LAND || p.Op == token.LOR
	case *ast.CaseClause:
		s, ok := f.stack[len(f.stack)-3].(*ast.SwitchStmt)
		condition = ok && s.Tag == nil
	}
	if condition {
		f.negate(e, "negation", e.Pos(), "", "!")
	}
}

func (f *finder) negate(e ast.Expr, operator string, at token.Pos, from, to string) {
	id := f.add(operator, at, from, to)
	f.wrap(e, fmt.Sprintf("(mutantIs(%d) != (", id), "))")
}

func (f *finder) minOrMax(n *ast.CallExpr) {
	name, ok := n.Fun.(*ast.Ident)
	if !ok || f.constant(n) || f.info.Uses[name] != types.Universe.Lookup("min") &&
		f.info.Uses[name] != types.Universe.Lookup("max") {
		return
	}
	id := f.add("min or max", name.Pos(), name.Name, others[name.Name])
	helper := map[string]string{"min": "mutantMin", "max": "mutantMax"}[name.Name]
	f.replace(name.Pos(), len(name.Name)+1, fmt.Sprintf("%s(%d, ", helper, id))
}

// assign changes x += y, x -= y, x++ and x--.
func (f *finder) assign(x, y ast.Expr, op token.Token, at token.Pos) {
	to, ok := assigned[op]
	if !ok || !f.number(x) {
		return
	}
	id := f.add("assignment", at, op.String(), to)
	call := fmt.Sprintf("= %s(%d, %s, ", helpers[op], id, f.text[f.offset(x.Pos()):f.offset(x.End())])
	if y == nil {
		f.replace(at, len(op.String()), call+"1)")
		return
	}
	f.replace(at, len(op.String()), call)
	f.wrap(y, "", ")")
}

// leaveOut leaves a statement out that changes something or is a call. One that only
// panics is not: what it asserts is never so.
func (f *finder) leaveOut(n ast.Stmt) {
	switch f.stack[len(f.stack)-1].(type) {
	case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
	default:
		return
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			return
		}
	case *ast.ExprStmt:
		call, ok := n.X.(*ast.CallExpr)
		if !ok {
			return
		}
		if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "panic" {
			return
		}
	}
	id := f.add("statement", n.Pos(), "", "")
	last := &f.found[len(f.found)-1]
	last.Old, last.New = strings.Join(strings.Fields(f.text[f.offset(n.Pos()):f.offset(n.End())]), " "), ""
	f.wrap(n, fmt.Sprintf("if !mutantIs(%d) { ", id), " }")
}

// branch leaves a loop where it is to go on.
func (f *finder) branch(n *ast.BranchStmt) {
	if n.Tok != token.CONTINUE || n.Label != nil {
		return
	}
	for _, outer := range slices.Backward(f.stack) {
		switch outer := outer.(type) {
		case *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
			return // a break would leave that
		case *ast.ForStmt:
			if outer.Cond == nil {
				return
			}
		case *ast.RangeStmt:
		default:
			continue
		}
		break
	}
	id := f.add("loop", n.Pos(), "continue", "break")
	f.wrap(n, fmt.Sprintf("if mutantIs(%d) { break }; ", id), "")
}

func (f *finder) constant(e ast.Expr) bool { return f.info.Types[e].Value != nil }

func (f *finder) number(e ast.Expr) bool {
	b, ok := f.info.TypeOf(e).Underlying().(*types.Basic)
	return ok && b.Info()&types.IsNumeric != 0
}

func (f *finder) offset(p token.Pos) int { return f.set.Position(p).Offset }

// add notes a mutant that has one piece of text for another.
func (f *finder) add(operator string, at token.Pos, from, to string) int {
	m := f.file
	m.id, m.Operator = f.next, operator
	f.next++
	for _, n := range f.stack {
		if d, ok := n.(*ast.FuncDecl); ok {
			m.Func = nameOf(d)
		}
	}
	o := f.offset(at)
	begin, end := strings.LastIndexByte(f.text[:o], '\n')+1, o+strings.IndexByte(f.text[o:], '\n')
	m.Old = strings.TrimSpace(f.text[begin:end])
	m.New = strings.TrimSpace(f.text[begin:o] + to + f.text[o+len(from):end])
	f.found = append(f.found, m)
	return m.id
}

// nameOf is a function's name with its receiver's.
func nameOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	return strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*") + "." + d.Name.Name
}

func (f *finder) wrap(n ast.Node, before, after string) {
	f.nest++
	f.edits = append(f.edits, edit{f.offset(n.Pos()), 0, opens, f.nest, before},
		edit{f.offset(n.End()), 0, closes, f.nest, after})
}

func (f *finder) replace(at token.Pos, drop int, text string) {
	f.edits = append(f.edits, edit{f.offset(at), drop, replaces, 0, text})
}

// rewritten is the file's text with all edits.
func (f *finder) rewritten() string {
	slices.SortStableFunc(f.edits, func(a, b edit) int {
		switch {
		case a.at != b.at:
			return a.at - b.at
		case a.sort != b.sort:
			return a.sort - b.sort
		case a.sort == closes:
			return b.nest - a.nest
		}
		return a.nest - b.nest
	})
	var text strings.Builder
	done := 0
	for _, e := range f.edits {
		text.WriteString(f.text[done:e.at])
		text.WriteString(e.text)
		done = e.at + e.drop
	}
	return text.String() + f.text[done:]
}
