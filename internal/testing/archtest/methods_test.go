package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// mostMethods is how many methods a type may have.
const mostMethods = 60

// TestTypesHaveFewMethods counts the methods of each type, generated ones not counted.
func TestTypesHaveFewMethods(t *testing.T) {
	t.Parallel()
	methods := map[string]int{}
	eachSource(t, func(file string) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "..", file), nil,
			parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(f) {
			return
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				methods[path.Dir(file)+"."+receiver(fn.Recv.List[0].Type)]++
			}
		}
	})
	if len(methods) < 500 {
		t.Fatalf("only %d types with methods seen: the sources are not read right", len(methods))
	}
	for name, n := range methods {
		if n > mostMethods {
			t.Errorf("%s has %d methods, of at most %d: give its facets types of their own", name, n, mostMethods)
		}
	}
}

// receiver returns the name of a receiver's type.
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
