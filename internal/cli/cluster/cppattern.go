package cluster

import (
	"path"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/fault"
)

// expand returns the paths that a source means: itself if it exists, else what it matches as a pattern. Only sources on
// a node are patterns: here the shell has expanded them.
func (t *transfer) expand(source string) ([]string, error) {
	if _, far := t.from.(there); !far || !strings.ContainsAny(source, `*?[`) {
		return []string{source}, nil
	}
	if _, err := t.from.Stat(source); err == nil {
		return []string{source}, nil
	}
	found := []string{""}
	if strings.HasPrefix(source, "/") {
		found[0] = "/"
	}
	for _, part := range strings.Split(strings.Trim(source, "/"), "/") {
		var next []string
		for _, dir := range found {
			names, err := t.matches(dir, part)
			if err != nil {
				return nil, err
			}
			next = append(next, names...)
		}
		found = next
	}
	if strings.HasSuffix(source, "/") { // folders only
		found = slices.DeleteFunc(found, func(p string) bool {
			info, err := t.from.Stat(p)
			return err != nil || !info.IsDir()
		})
	}
	if len(found) == 0 {
		return nil, fault.New(fault.NotFound, "nothing matches %s", source)
	}
	return found, nil
}

// matches returns the entries of a folder that one part of a pattern matches, in order. As in a shell, * and ? do not
// match a dot at the beginning, and what cannot be read matches nothing.
func (t *transfer) matches(dir, part string) ([]string, error) {
	pattern := pathPattern(part)
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fault.New(fault.Invalid, "%s is not a pattern: a [ has no ]", part)
	}
	if !strings.ContainsAny(part, `*?[`) {
		if _, err := t.from.Stat(path.Join(dir, part)); err != nil {
			return nil, nil
		}
		return []string{path.Join(dir, part)}, nil
	}
	at := dir
	if at == "" {
		at = "."
	}
	entries, _ := t.from.ReadDir(at)
	var out []string
	for _, e := range entries {
		if ok, _ := path.Match(pattern, e.name); ok && e.name != "" && (e.name[0] != '.' || part[0] == '.') {
			out = append(out, path.Join(dir, e.name))
		}
	}
	slices.Sort(out)
	return out, nil
}

// pathPattern returns a part of a shell's pattern as package path has it. In a shell, ! negates a class as ^ does, and
// a class can have a ] at its beginning and a - at both ends.
func pathPattern(part string) string {
	var b strings.Builder
	for {
		at := strings.IndexAny(part, `[\`)
		if at < 0 || at+1 == len(part) {
			break
		}
		b.WriteString(part[:at+1])
		class := part[at] == '['
		part = part[at+1:]
		if !class { // the character after a backslash
			b.WriteByte(part[0])
			part = part[1:]
			continue
		}
		if part[0] == '!' || part[0] == '^' {
			b.WriteByte('^')
			part = part[1:]
		}
		if part != "" && (part[0] == ']' || part[0] == '-') {
			b.WriteString(`\` + part[:1])
			part = part[1:]
		}
		members, rest, closed := strings.Cut(part, "]")
		if !closed {
			break
		}
		if first, dash := strings.CutSuffix(members, "-"); dash && !strings.HasSuffix(first, `\`) {
			members = first + `\-`
		}
		b.WriteString(members + "]")
		part = rest
	}
	b.WriteString(part)
	return b.String()
}
