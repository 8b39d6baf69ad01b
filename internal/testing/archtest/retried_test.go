package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// growsIn returns the variables from outside of a closure that running it twice would change twice: it appends to them
// or adds to them, and has not set them before. Closures that run once after the commit may do so.
func growsIn(f *ast.FuncLit) (out []*ast.Ident) {
	own := map[token.Pos]bool{} // by where a variable is declared
	set := map[token.Pos]bool{}
	root := func(e ast.Expr) *ast.Ident {
		for {
			switch x := e.(type) {
			case *ast.Ident:
				return x
			case *ast.SelectorExpr:
				e = x.X
			case *ast.IndexExpr:
				e = x.X
			case *ast.StarExpr:
				e = x.X
			case *ast.ParenExpr:
				e = x.X
			default:
				return nil
			}
		}
	}
	grows := func(e ast.Expr) {
		v, plain := e.(*ast.Ident)
		if plain && v.Obj != nil && v.Obj.Kind == ast.Var && !own[v.Obj.Pos()] && !set[v.Obj.Pos()] {
			out = append(out, v)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.Ident); ok && v.Obj != nil && f.Pos() <= v.Obj.Pos() && v.Obj.Pos() < f.End() {
			own[v.Obj.Pos()] = true
		}
		return true
	})
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.CallExpr:
			if s, ok := x.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "AfterCommit") {
				return false
			}
		case *ast.IncDecStmt:
			grows(x.X)
		case *ast.AssignStmt:
			if x.Tok == token.ADD_ASSIGN || x.Tok == token.SUB_ASSIGN {
				grows(x.Lhs[0])
				return true
			}
			for i, l := range x.Lhs {
				call, ok := ast.Expr(nil), false
				if i < len(x.Rhs) {
					call, ok = x.Rhs[i], true
				}
				c, isCall := call.(*ast.CallExpr)
				if ok && isCall && len(c.Args) > 0 {
					fn, named := c.Fun.(*ast.Ident)
					to, from := root(l), root(c.Args[0])
					if named && fn.Name == "append" && to != nil && from != nil && to.Obj != nil && to.Obj == from.Obj {
						grows(l)
						continue
					}
				}
				if v, plain := l.(*ast.Ident); plain && v.Obj != nil {
					set[v.Obj.Pos()] = true
				}
			}
		}
		return true
	})
	return out
}

// retried returns the closures that db.InTx may run several times.
func retried(file *ast.File) (out []*ast.FuncLit) {
	ast.Inspect(file, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok && len(c.Args) == 2 {
			if s, ok := c.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "InTx" {
				if f, ok := c.Args[1].(*ast.FuncLit); ok {
					out = append(out, f)
				}
			}
		}
		return true
	})
	return out
}

// A transaction's closure runs again after a deadlock. What it adds to a variable outside counts twice then.
func TestRetriedTransactions_CountOnce(t *testing.T) {
	t.Parallel()
	seen := 0
	eachSource(t, func(path string) {
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/dbq/") || strings.HasSuffix(path, "_templ.go") {
			return
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.Join("..", "..", "..", path), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range retried(file) {
			seen++
			for _, v := range growsIn(f) {
				t.Errorf("%s: %s grows in a closure that InTx may run again: set it in the closure first, or add to it after "+
					"InTx", set.Position(v.Pos()), v.Name)
			}
		}
	})
	if seen < 100 {
		t.Errorf("only %d transactions seen: the pattern is broken", seen)
	}
}

func TestRetriedTransactions_AreRead(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{
		"n++":                                   1,
		"n += 2":                                1,
		"all = append(all, 1)":                  1,
		"all = nil; all = append(all, 1)":       0,
		"n = 0; n++":                            0,
		"m := 0; m++":                           0,
		"for i := 0; i < 3; i++ { n = i }":      0,
		"tx.AfterCommit(func() { n++ })":        0,
		"b := []int{}; b = append(b, 1); _ = b": 0,
	} {
		src := "package p\nfunc f() { n, all := 0, []int{}; _ = d.InTx(ctx, func(ctx C, tx *T) error { " + body +
			"; return nil }); _, _ = n, all }"
		file, err := parser.ParseFile(token.NewFileSet(), "a.go", src, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := growsIn(retried(file)[0]); len(got) != want {
			t.Errorf("%s: %d, want %d", body, len(got), want)
		}
	}
}
