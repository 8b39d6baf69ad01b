package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// envMutant names the mutant that a woven program is; none: it is as written.
const envMutant = "MUSTER_MUTANT"

// inPlay is the variable of woven packages that has the value of envMutant.
const inPlay = "mutantInPlay"

// inPlayFile is the text of a file that declares it.
func inPlayFile(pkg string) string {
	return fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar %s = os.Getenv(%q)\n", pkg, inPlay, envMutant)
}

// edit is a piece of a file and what is there instead.
type edit struct {
	from, to int
	text     string
}

// weave returns a Go file that can be any of its mutants, by an environment variable: a function that a mutant changes
// is there once more, changed, and calls that copy if its mutant is in play; a constant that a mutant changes is a
// variable. So all mutants are compiled once, together. alone are the mutants for which that cannot be done. All
// mutants' texts are in the file.
func weave(src string, ms []mutant) (woven, pkg string, alone []mutant, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", src, parser.SkipObjectResolution)
	if err != nil {
		return "", "", nil, err
	}
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	var edits []edit
	var copies strings.Builder
	for _, m := range ms {
		at := strings.Index(src, m.old)
		change := edit{at, at + len(m.old), m.new}
		decl := slices.IndexFunc(f.Decls, func(d ast.Decl) bool {
			return offset(d.Pos()) <= change.from && change.to <= offset(d.End())+1 // the newline after it may be in the text
		})
		if decl < 0 {
			alone = append(alone, m)
			continue
		}
		switch d := f.Decls[decl].(type) {
		case *ast.FuncDecl:
			call, ok := again(d, m.name)
			if !ok || change.from < offset(d.Body.Lbrace) {
				alone = append(alone, m)
				continue
			}
			edits = append(edits, edit{offset(d.Body.Lbrace) + 1, offset(d.Body.Lbrace) + 1, call})
			name := edit{offset(d.Name.Pos()), offset(d.Name.End()), copyOf(d.Name.Name, m.name)}
			text := apply(src[:max(offset(d.End()), change.to)], name, change)
			fmt.Fprintf(&copies, "\n//line mutant-%s:1\n%s\n", m.name, text[offset(d.Pos()):])
		case *ast.GenDecl:
			v := valueOf(d)
			if v == nil || slices.ContainsFunc(edits, func(e edit) bool { return e.from == offset(v.Pos()) }) ||
				change.from < offset(v.Pos()) || change.to > offset(v.End()) {
				alone = append(alone, m)
				continue
			}
			from, to := offset(v.Pos()), offset(v.End())
			changed := apply(src[:to], change)[from:]
			edits = append(edits, edit{offset(d.Pos()), offset(d.Pos()) + len("const"), "var"},
				edit{from, to, fmt.Sprintf("func() string { if %s == %q { return %s }; return %s }()", inPlay, m.name,
					changed, src[from:to])})
		}
	}
	return apply(src, edits...) + copies.String(), f.Name.Name, alone, nil
}

func copyOf(name, mutant string) string { return name + "_" + strings.ReplaceAll(mutant, "-", "_") }

// again returns the statement at the beginning of a function that calls its copy for a mutant.
func again(d *ast.FuncDecl, mutant string) (call string, ok bool) {
	if d.Body == nil || d.Type.TypeParams != nil {
		return "", false
	}
	to := copyOf(d.Name.Name, mutant)
	if d.Recv != nil {
		if len(d.Recv.List[0].Names) == 0 || d.Recv.List[0].Names[0].Name == "_" {
			return "", false
		}
		to = d.Recv.List[0].Names[0].Name + "." + to
	}
	var args []string
	for _, p := range d.Type.Params.List {
		dots := ""
		if _, variadic := p.Type.(*ast.Ellipsis); variadic {
			dots = "..."
		}
		if len(p.Names) == 0 {
			return "", false
		}
		for _, n := range p.Names {
			if n.Name == "_" {
				return "", false
			}
			args = append(args, n.Name+dots)
		}
	}
	call = fmt.Sprintf("%s(%s)", to, strings.Join(args, ", "))
	if d.Type.Results == nil {
		call += "; return"
	} else {
		call = "return " + call
	}
	return fmt.Sprintf(" if %s == %q { %s };", inPlay, mutant, call), true
}

// valueOf returns the value of a declaration of one constant; nil: it is another declaration.
func valueOf(d *ast.GenDecl) ast.Expr {
	if d.Tok != token.CONST || d.Lparen.IsValid() {
		return nil
	}
	s := d.Specs[0].(*ast.ValueSpec)
	if len(s.Values) != 1 || s.Type != nil {
		return nil
	}
	if v, ok := s.Values[0].(*ast.BasicLit); ok && v.Kind == token.STRING {
		return v
	}
	return nil
}

// apply makes edits, which do not overlap. Of those at one place, the first comes first.
func apply(src string, edits ...edit) string {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	var out strings.Builder
	at := 0
	for _, e := range edits {
		out.WriteString(src[at:e.from] + e.text)
		at = e.to
	}
	return out.String() + src[at:]
}
