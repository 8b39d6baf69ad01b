package docs

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// markdown renders what our documents use of GitHub's Markdown. Raw HTML is left out, and columns are aligned by
// attributes, because the pages' security policy forbids inline styles.
var markdown = goldmark.New(
	goldmark.WithExtensions(
		extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
		extension.Strikethrough,
	),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
)

// render renders one document. file is its path below docs; links are relative to it. made are the pages
// that are no files.
func render(file string, source []byte, files fs.FS, made map[string]string) *Document {
	d := &Document{Slug: slug(file)}
	ctx := parser.NewContext(parser.WithIDs(&anchors{used: map[string]bool{}}))
	root := markdown.Parser().Parse(text.NewReader(source), parser.WithContext(ctx))
	var unlink []*ast.Link
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Heading:
			if entering {
				d.heading(n, source)
				return ast.WalkSkipChildren, nil
			}
		case *ast.Link:
			if entering && !d.follow(n, file, files, made) {
				unlink = append(unlink, n)
			}
		case *ast.Text:
			if entering {
				d.write(string(n.Segment.Value(source)), n.SoftLineBreak() || n.HardLineBreak())
			}
		case *ast.CodeSpan:
			// its text is a child
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			if entering {
				d.write(string(n.Lines().Value(source)), true)
			}
		case *ast.Paragraph, *ast.TextBlock, *east.TableCell:
			if !entering {
				d.write("", true)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, n := range unlink {
		replaceByText(n)
	}
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, source, root); err != nil {
		panic(fmt.Sprintf("docs: render %s: %v", file, err)) // a buffer takes all
	}
	d.HTML = frame(b.String())
	d.about = firstSentence(d.parts)
	return d
}

// heading begins a part of the document.
func (d *Document) heading(n *ast.Heading, source []byte) {
	var b strings.Builder
	_ = ast.Walk(n, func(c ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := c.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	id := ""
	if v, ok := n.AttributeString("id"); ok {
		id = string(v.([]byte))
	}
	title := b.String()
	if n.Level == 1 && d.Title == "" {
		d.Title = title
	}
	if n.Level == 2 || n.Level == 3 {
		d.Contents = append(d.Contents, Heading{n.Level, id, title})
	}
	d.parts = append(d.parts, part{id: id, title: title})
}

// write adds to the text of the part under way.
func (d *Document) write(s string, space bool) {
	if len(d.parts) == 0 {
		d.parts = append(d.parts, part{})
	}
	p := &d.parts[len(d.parts)-1]
	p.text += s
	if space && !strings.HasSuffix(p.text, " ") {
		p.text += " "
	}
}

// follow points a link to its place on the site. It reports false if the site does not have what it leads to.
func (d *Document) follow(n *ast.Link, file string, files fs.FS, made map[string]string) bool {
	u, err := url.Parse(string(n.Destination))
	if err != nil {
		return false
	}
	if u.Scheme != "" || u.Path == "" || strings.HasPrefix(u.Path, "/") {
		if u.Path == "" && u.Fragment != "" {
			d.links = append(d.links, d.URL()+"#"+u.Fragment)
		}
		return true
	}
	target := path.Join(path.Dir(file), u.Path)
	if _, err := fs.Stat(files, path.Join(target, "README.md")); err == nil {
		target = path.Join(target, "README.md")
	}
	switch {
	case published(target, made):
		u.Path = base + "/" + slug(target)
		d.links = append(d.links, u.String())
	case isFile(target):
		u.Path = base + "/" + target
	default:
		d.links = append(d.links, target)
		return false
	}
	n.Destination = []byte(u.String())
	return true
}

func replaceByText(n *ast.Link) {
	parent := n.Parent()
	for c := n.FirstChild(); c != nil; {
		next := c.NextSibling()
		parent.InsertBefore(parent, n, c)
		c = next
	}
	parent.RemoveChild(parent, n)
}

// frame lets wide tables and code scroll within the page.
func frame(html string) string {
	return strings.NewReplacer(
		"<table>", `<div class="scroll"><table class="tbl">`, "</table>", "</table></div>",
		"<pre>", `<div class="scroll code"><pre>`, "</pre>", "</pre></div>",
	).Replace(html)
}

// firstSentence returns what the first part of a document says first, for the menu.
func firstSentence(parts []part) string {
	if len(parts) == 0 {
		return ""
	}
	s := strings.TrimSpace(parts[0].text)
	if i := strings.Index(s, ". "); i > 0 {
		s = s[:i+1]
	}
	return clip(s, 160)
}

// clip cuts a text at a word.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	s = strings.ToValidUTF8(s[:most], "")
	if i := strings.LastIndexByte(s, ' '); i > 0 {
		s = s[:i]
	}
	return s + " …"
}

// anchors makes the ids of headings as GitHub does, so that a link to a heading works in both places.
type anchors struct{ used map[string]bool }

// Generate returns the id of a heading.
func (a *anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(string(value))) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '_', r == '-':
			b.WriteRune(r)
		case r == ' ':
			b.WriteByte('-')
		}
	}
	id := b.String()
	for n := 1; a.used[id]; n++ {
		id = b.String() + "-" + strconv.Itoa(n)
	}
	a.used[id] = true
	return []byte(id)
}

// Put notes an id that a document sets itself.
func (a *anchors) Put(value []byte) { a.used[string(value)] = true }
