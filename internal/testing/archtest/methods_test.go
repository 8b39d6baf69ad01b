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

// bigTypes are those that have more today, each with how many. A number may only shrink.
var bigTypes = map[string]int{
	"internal/account.Accounts":         103,
	"internal/billing/payment.Payments": 140,
}

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
		switch most, big := bigTypes[name]; {
		case !big && n > mostMethods:
			t.Errorf("%s has %d methods, of at most %d: give its facets types of their own", name, n, mostMethods)
		case big && n > most:
			t.Errorf("%s has %d methods, more than the %d that it had", name, n, most)
		case big && n < most:
			t.Errorf("%s has %d methods, fewer than the %d of bigTypes: lower the number, or remove the line", name, n, most)
		}
	}
	for name := range bigTypes {
		if methods[name] == 0 {
			t.Errorf("%s of bigTypes has no method", name)
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
