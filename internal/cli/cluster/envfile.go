package cluster

import (
	"bytes"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/text"
)

// envFormat is the format of --env-file, as the help has it.
const envFormat = `The file of --env-file has a line KEY=VALUE for each variable, and may be one that a shell reads: "export " before
KEY is ignored, and so are empty lines and what follows a # at the beginning of a line or after a space: COLOR=#fff has
the value #fff. A value in single quotes is taken as it is; in double quotes, \n, \r, \t, \", \\ and \$ have their usual
meaning. Quoted values may have several lines. A value without quotes ends with its line, without the spaces around it.
Nothing is expanded: $HOME stays $HOME. KEY alone passes on its value from your environment. Of several values of a
variable the last one counts, and --env counts more. The file is UTF-8, with or without a byte order mark, with line
ends of Unix or Windows.`

// variableName is what programs accept as the name of a variable of the environment.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// envReader reads a file of variables.
type envReader struct {
	file   string
	rest   string // not read yet
	line   int    // of the beginning of rest
	lookup func(name string) (string, bool)
}

// readEnv reads the variables of a file in envFormat and passes them to set in their order. lookup returns a variable
// of the environment.
func readEnv(file string, raw []byte, lookup func(string) (string, bool), set func(k, v string)) error {
	if bytes.HasPrefix(raw, []byte("\xff\xfe")) || bytes.HasPrefix(raw, []byte("\xfe\xff")) {
		return fault.New(fault.Invalid, "%s is in UTF-16: save it as UTF-8", file)
	}
	all := string(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")))
	r := envReader{file: file, rest: strings.ReplaceAll(all, "\r\n", "\n"), line: 1, lookup: lookup}
	for r.rest != "" {
		k, v, err := r.next()
		if err != nil {
			return err
		}
		if k != "" {
			set(k, v)
		}
	}
	return nil
}

func (r *envReader) fail(format string, args ...any) error {
	return fault.New(fault.Invalid, "%s:%d: "+format, append([]any{r.file, r.line}, args...)...)
}

// next reads a line, or several if a quoted value has several. k is "" if the line has no variable.
func (r *envReader) next() (k, v string, err error) {
	line, after, _ := strings.Cut(r.rest, "\n")
	if !utf8.ValidString(line) {
		return "", "", r.fail("is not UTF-8")
	}
	trimmed := strings.TrimSpace(line)
	if trimmed == "" || trimmed[0] == '#' {
		r.advance(after)
		return "", "", nil
	}
	k, _, assigned := strings.Cut(line, "=")
	k = strings.TrimSpace(k)
	if name, ok := strings.CutPrefix(k, "export"); ok && name != strings.TrimLeft(name, " \t") {
		k = strings.TrimSpace(name)
	}
	if !assigned {
		k, _ = cutComment(k)
	}
	if !variableName.MatchString(k) {
		if !assigned {
			return "", "", r.fail("want KEY=VALUE")
		}
		return "", "", r.fail("%q is not a variable name: want letters, digits and _, no digit first", text.Ellipsis(k, 40))
	}
	if !assigned {
		if v, ok := r.lookup(k); ok {
			r.advance(after)
			return k, v, nil
		}
		return "", "", r.fail("want KEY=VALUE: %s is not set in your environment", k)
	}
	value := strings.TrimLeft(r.rest[strings.IndexByte(r.rest, '=')+1:], " \t")
	if value == "" || (value[0] != '"' && value[0] != '\'') {
		v, _ := cutComment(line[strings.IndexByte(line, '=')+1:])
		r.advance(after)
		return k, v, nil
	}
	v, rest, closed := unquote(value)
	if !closed {
		return "", "", r.fail("the quote %c of %s is not closed; if it is part of the value, put the value in the other "+
			"quotes", value[0], k)
	}
	behind, after, _ := strings.Cut(rest, "\n")
	if more, _ := cutComment(behind); more != "" {
		return "", "", r.fail("%s: text follows the closing quote", k)
	}
	if !utf8.ValidString(v) {
		return "", "", r.fail("%s is not UTF-8", k)
	}
	r.advance(after)
	return k, v, nil
}

func (r *envReader) advance(to string) {
	r.line += strings.Count(r.rest[:len(r.rest)-len(to)], "\n")
	r.rest = to
}

// cutComment returns s, which is part of a line, without the spaces around it and without a comment. A # begins a
// comment only after a space or a tab: COLOR=#fff has a value.
func cutComment(s string) (text string, comment bool) {
	for i := range len(s) {
		if i > 0 && s[i] == '#' && (s[i-1] == ' ' || s[i-1] == '\t') {
			return strings.TrimSpace(s[:i]), true
		}
	}
	return strings.TrimSpace(s), false
}

// unquote reads a value that begins with a quote, and returns what follows the closing one.
func unquote(s string) (value, rest string, closed bool) {
	if s[0] == '\'' {
		return strings.Cut(s[1:], "'")
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], true
		case c == '\\' && i+1 < len(s) && strings.IndexByte(escaped, s[i+1]) >= 0:
			i++
			b.WriteByte(escapes[strings.IndexByte(escaped, s[i])])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

// What a backslash changes in double quotes; before every other character it stays.
const (
	escaped = "nrt\"\\$`"
	escapes = "\n\r\t\"\\$`"
)
