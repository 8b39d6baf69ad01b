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

// Section is one of the parts of the documentation, with its pages.
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
		"shell.md", "images.md", "launch/README.md", "hosts.md", "operations.md", "stripe.md"}},
	{"Reference", "Exact rules, commands and terms.", []string{
		"data.md", "your-bill.md", "your-earnings.md", "losses.md", "isolation.md",
		"host-gpus.md", "host-network.md", "host-agent.md", "host-home.md", commandIndex, "glossary.md"}},
	{"REST API", "Programs that rent, and programs that host.", []string{
		"api/README.md", "api/quick-start.md", "api/authentication.md", "api/errors.md", "api/pagination.md",
		"api/idempotency.md", "api/queries.md", "api/webhooks.md", apiNouns}},
	{design, "How Muster works inside, and why. You need none of this to rent or to host.", []string{
		"architecture.md", "adding-a-noun.md", "money.md", "growing.md", "agent.md", "adr/README.md", "evidence/README.md",
		"evidence/proof.md", "evidence/kills.md", "evidence/bench.md", "evidence/field.md"}},
}

// commandIndex stands for the reference of the command line, which is no file.
const commandIndex = "cli.md"

// apiNouns stands for the reference of the REST API: a page for each noun of its document, and no file.
const apiNouns = "api/*.md"

// sources are what pages are made of, beside the files.
type sources struct {
	commands map[string]string // pages about the command line in Markdown, by the name of the command below muster
	openAPI  []byte            // the document of the REST API; nil: there is none
}

// pages returns the pages that are made of the sources, by the file for which each stands, and the files of the API's
// nouns in the order of the menu.
func (s sources) pages() (pages map[string]string, nouns []string, err error) {
	pages = map[string]string{}
	if len(s.openAPI) > 0 {
		if pages, nouns, err = referencePages(s.openAPI); err != nil {
			return nil, nil, err
		}
	}
	for name, page := range s.commands {
		pages["cli/"+name+".md"] = page
	}
	if len(s.commands) > 0 {
		pages[commandIndex] = indexOfCommands(s.commands)
	}
	return pages, nouns, nil
}

// library is all documents, rendered.
type library struct {
	menu   []Section
	bySlug map[string]*Document
	inMenu []*Document
	all    []*Document // in the order of the search's results: the menu's, then decisions and commands
}

// newLibrary renders the documents of a file system, and those that are made of other sources.
func newLibrary(files fs.FS, from sources) (*library, error) {
	made, nouns, err := from.pages()
	if err != nil {
		return nil, err
	}
	l := &library{bySlug: map[string]*Document{}}
	for _, s := range plan {
		section := Section{Title: s.title, About: s.about}
		for _, file := range expand(s.files, nouns) {
			if file == commandIndex && made[file] == "" {
				continue
			}
			d, err := l.add(files, file, s.title, made)
			if err != nil {
				return nil, err
			}
			l.inMenu = append(l.inMenu, d)
			section.Pages = append(section.Pages, Entry{d.Title, d.URL(), d.about})
		}
		l.menu = append(l.menu, section)
	}
	decisions, err := fs.Glob(files, "adr/0*.md")
	if err != nil {
		return nil, err
	}
	for _, file := range decisions {
		if _, err := l.add(files, file, design, made); err != nil {
			return nil, err
		}
	}
	for _, file := range slices.Sorted(maps.Keys(made)) {
		if strings.HasPrefix(file, "cli/") {
			l.put(render(file, []byte(made[file]), files, made), "Reference")
		}
	}
	l.joinNeighbours()
	return l, nil
}

// expand replaces apiNouns in a list of files by the nouns' own.
func expand(files, nouns []string) []string {
	i := slices.Index(files, apiNouns)
	if i < 0 {
		return files
	}
	return slices.Concat(files[:i], nouns, files[i+1:])
}

func (l *library) add(files fs.FS, file, section string, made map[string]string) (*Document, error) {
	source := []byte(made[file])
	if len(source) == 0 {
		var err error
		if source, err = fs.ReadFile(files, file); err != nil {
			return nil, fmt.Errorf("read a page of the documentation: %w", err)
		}
	}
	d := render(file, source, files, made)
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

// published reports whether a path below docs is a page of the site. made are the pages that are no files.
func published(file string, made map[string]string) bool {
	if strings.HasPrefix(file, "adr/0") || made[file] != "" {
		return true
	}
	if file == commandIndex {
		return false
	}
	for _, s := range plan {
		if slices.Contains(s.files, file) {
			return true
		}
	}
	return false
}
