package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// notFound are the other ways to write "X not found".
var notFound = regexp.MustCompile(`(?i)^(there is |there are )?no such\b|^there is no\b|does not exist\.?$|not found\.$`)

// TestErrorTexts holds error texts and log lines to the form that CONTRIBUTING.md describes.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	texts := 0
	eachSource(t, func(file string) {
		if strings.Contains(file, "/dbq/") || strings.HasSuffix(file, "_templ.go") {
			return // generated
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, filepath.Join("..", "..", "..", file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if checkError(call, f.Name.Name, func(why string) { t.Errorf("%s: %s", fset.Position(call.Pos()), why) }) {
					texts++
				}
			}
			return true
		})
	})
	if texts < 1500 {
		t.Fatalf("only %d error texts seen: the walk is broken", texts)
	}
}

// checkError calls bad for each fault in the form of an error or a log line that call makes in a package. It reports
// whether call makes an error.
func checkError(call *ast.CallExpr, pkg string, bad func(why string)) bool {
	for i, arg := range call.Args {
		if i == 0 {
			continue
		}
		if key, ok := literal(call.Args[i-1]); ok && isErr(arg) && (key == "error" || key == "e" || key == "cause") {
			bad("the key of an error in a log line is err, not " + key)
		}
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return false
	}
	switch x.Name + "." + sel.Sel.Name {
	case "errors.New", "fmt.Errorf":
		s, _ := literal(call.Args[0])
		if strings.HasPrefix(s, pkg+": ") {
			bad("an error does not begin with the name of its package: " + s)
		}
		return true
	case "fault.New", "fault.Wrap":
		for i, arg := range call.Args {
			kind, ok := arg.(*ast.SelectorExpr)
			if !ok || kind.Sel.Name != "NotFound" || i+1 >= len(call.Args) {
				continue
			}
			if s, _ := literal(call.Args[i+1]); notFound.MatchString(s) {
				bad(`an object that is missing is "X not found": ` + s)
			}
		}
		return true
	}
	return false
}

// literal returns the text of a string constant, of a sum of them its beginning.
func literal(e ast.Expr) (string, bool) {
	for {
		sum, ok := e.(*ast.BinaryExpr)
		if !ok {
			break
		}
		e = sum.X
	}
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

// isErr reports whether an expression is a variable named err.
func isErr(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "err"
}
