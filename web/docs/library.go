package docs

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// base is the path of the documentation.
const base = "/docs"

// Link is a link of a menu.
type Link struct{ Title, URL string }

// Section is one of the four parts of the documentation, with its pages.
type Section struct {
	Title, About string
	Pages        []Entry
}

// Entry is a page in the menu.
type Entry struct{ Title, URL, About string }

// Document is one rendered page.
type Document struct {
	Slug, Title, Section string
	HTML                 string    // safe: rendered by us, without raw HTML of the source
	Contents             []Heading // headings of the second and third level
	Before, After        *Entry    // its neighbours in the menu

	about string
	parts []part
	links []string // addresses of links within the site, and paths of files that the site does not show
}

// URL is the address of a page.
func (d *Document) URL() string { return base + "/" + d.Slug }

// Heading is an entry of a page's table of contents.
type Heading struct {
	Level     int
	ID, Title string
}

// part is the text below one heading, for the search.
type part struct{ id, title, text string }

// plan lists the documents by section, in the order of the menu. Documents that are not listed are not on the site.
var plan = []struct {
	title, about string
	files        []string
}{
	{"Tutorials", "Learn by doing: from nothing to a result.", []string{
		"tutorials/first-cluster.md", "tutorials/first-host.md"}},
	{"How-to guides", "Reach a goal, step by step.", []string{
		"shell.md", "images.md", "launch/README.md", "hosts.md", "operations.md", "growing.md", "stripe.md"}},
	{"Reference", "Exact rules, commands and terms.", []string{
		"your-bill.md", "your-earnings.md", "losses.md", "isolation.md", commandIndex, "glossary.md"}},
	{"Design", "How Muster works inside, and why.", []string{
		"architecture.md", "money.md", "proof.md", "kills.md", "adr/README.md"}},
}

// commandIndex stands for the reference of the command line, which is no file.
const commandIndex = "cli.md"

// apiReference is the reference of the REST API, which has a page of its own.
var apiReference = Entry{"REST API", "/api/docs", "Every operation, its fields and an example."}

// library is all documents, rendered.
type library struct {
	menu   []Section
	bySlug map[string]*Document
	inMenu []*Document
	all    []*Document // in the order of the search's results: the menu's, then decisions and commands
}

// newLibrary renders the documents of a file system. commands are the pages about the command line, in Markdown, by the
// name of the command below muster.
func newLibrary(files fs.FS, commands map[string]string) (*library, error) {
	l := &library{bySlug: map[string]*Document{}}
	for _, s := range plan {
		section := Section{Title: s.title, About: s.about}
		for _, file := range s.files {
			if file == commandIndex && len(commands) == 0 {
				continue
			}
			d, err := l.add(files, file, s.title, commands)
			if err != nil {
				return nil, err
			}
			l.inMenu = append(l.inMenu, d)
			section.Pages = append(section.Pages, Entry{d.Title, d.URL(), d.about})
			if file == commandIndex {
				section.Pages = append(section.Pages, apiReference)
			}
		}
		l.menu = append(l.menu, section)
	}
	decisions, err := fs.Glob(files, "adr/0*.md")
	if err != nil {
		return nil, err
	}
	for _, file := range decisions {
		if _, err := l.add(files, file, "Design", nil); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		l.put(render("cli/"+name+".md", []byte(commands[name]), files, commands), "Reference")
	}
	l.joinNeighbours()
	return l, nil
}

func (l *library) add(files fs.FS, file, section string, commands map[string]string) (*Document, error) {
	source := []byte(indexOfCommands(commands))
	if file != commandIndex {
		var err error
		if source, err = fs.ReadFile(files, file); err != nil {
			return nil, fmt.Errorf("read a page of the documentation: %w", err)
		}
	}
	d := render(file, source, files, commands)
	l.put(d, section)
	return d, nil
}

func (l *library) put(d *Document, section string) {
	d.Section = section
	l.bySlug[d.Slug] = d
	l.all = append(l.all, d)
}

func (l *library) joinNeighbours() {
	entry := func(d *Document) *Entry { return &Entry{d.Title, d.URL(), d.about} }
	for i, d := range l.inMenu {
		if i > 0 {
			d.Before = entry(l.inMenu[i-1])
		}
		if i < len(l.inMenu)-1 {
			d.After = entry(l.inMenu[i+1])
		}
	}
}

// indexOfCommands is the page that lists the commands, in Markdown.
func indexOfCommands(commands map[string]string) string {
	var b strings.Builder
	b.WriteString("# Command line\n\nEvery command of `muster`. The same texts are in `muster COMMAND --help` and in manual " +
		"pages, which `muster man FOLDER` writes.\n\n| command | purpose |\n| --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		fmt.Fprintf(&b, "| [muster %s](cli/%s.md) | %s |\n", name, name, summary(commands[name]))
	}
	return b.String()
}

// summary returns the first paragraph of a Markdown page, as one line for a table.
func summary(source string) string {
	for line := range strings.Lines(source) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return strings.ReplaceAll(line, "|", "\\|")
		}
	}
	return ""
}

// slug is the address of a document below base: its path without the ending, README standing for its folder.
func slug(file string) string {
	s := strings.TrimSuffix(file, ".md")
	if path.Base(s) == "README" {
		return path.Dir(s)
	}
	return s
}

// published reports whether a path below docs is a page of the site.
func published(file string, commands map[string]string) bool {
	if name, ok := strings.CutPrefix(file, "cli/"); ok {
		return commands[strings.TrimSuffix(name, ".md")] != ""
	}
	if file == commandIndex {
		return len(commands) > 0
	}
	if strings.HasPrefix(file, "adr/0") {
		return true
	}
	for _, s := range plan {
		if slices.Contains(s.files, file) {
			return true
		}
	}
	return false
}
