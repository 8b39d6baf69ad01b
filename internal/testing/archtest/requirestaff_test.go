package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestStaffIsCheckedInOnePlace: a use case for admins calls account.RequireStaff. No other package of internal decides
// anything by a field named Admin.
func TestStaffIsCheckedInOnePlace(t *testing.T) {
	t.Parallel()
	files := 0
	eachSource(t, func(file string) {
		if strings.HasSuffix(file, "_test.go") || !strings.HasPrefix(file, "internal/") ||
			strings.HasPrefix(file, "internal/account/") || strings.HasPrefix(file, "internal/testing/") {
			return
		}
		files++
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, filepath.Join("..", "..", "..", file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			for _, condition := range conditionsOf(n) {
				if readsAdmin(condition) {
					t.Errorf("%s: this decides by Admin: call account.RequireStaff", set.Position(condition.Pos()))
				}
			}
			return true
		})
	})
	if files < 300 {
		t.Fatalf("only %d files seen: the walk is broken", files)
	}
}

// conditionsOf returns the expressions by which a node decides.
func conditionsOf(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.IfStmt:
		return []ast.Expr{n.Cond}
	case *ast.CaseClause:
		return n.List
	case *ast.SwitchStmt:
		if n.Tag != nil {
			return []ast.Expr{n.Tag}
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			return []ast.Expr{n.X}
		}
	case *ast.BinaryExpr:
		if n.Op == token.LAND || n.Op == token.LOR {
			return []ast.Expr{n.X, n.Y}
		}
	}
	return nil
}

func readsAdmin(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Admin"
}
