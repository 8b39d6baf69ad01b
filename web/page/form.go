package page

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/web/view"
)

// Render writes a component as the response, whole or not at all: if it cannot be rendered, an error page follows.
func (s *Site) Render(v *Visit, c templ.Component) error {
	var b bytes.Buffer
	if err := c.Render(v.R.Context(), &b); err != nil {
		return err
	}
	v.W.Header().Set("Content-Type", "text/html; charset=utf-8")
	if v.Status != 0 {
		v.W.WriteHeader(v.Status)
	}
	_, _ = v.W.Write(v.withOrg(b.Bytes()))
	return nil
}

// orgField is the hidden field of every form with the organisation that it was shown for.
const orgField = "for_org"

var postForm = regexp.MustCompile(`<form\b[^>]*\bmethod="post"[^>]*>`)

// withOrg adds the field orgField to the forms of a page that post.
func (v *Visit) withOrg(html []byte) []byte {
	if !v.SignedIn() {
		return html
	}
	field := `<input type="hidden" name="` + orgField + `" value="` + v.Who.Org.String() + `"/>`
	return postForm.ReplaceAll(html, []byte("$0"+field))
}

// Again shows a form again with a message next to each wrong field. It returns err if the form cannot show it.
func (s *Site) Again(v *Visit, err error, show func(errors map[string]string) error) error {
	errs := FormErrors(err)
	if errs == nil {
		return err
	}
	v.Status = fault.KindOf(err).HTTPStatus()
	return show(errs)
}

// FormErrors maps a fault to messages by field, with "" for the whole form. It returns nil if the fault is not about
// the form.
func FormErrors(err error) map[string]string {
	f := fault.From(err)
	if f == nil || f.Kind == fault.Internal || f.Kind == fault.NotFound {
		return nil
	}
	errs := map[string]string{}
	for _, x := range f.Fields {
		errs[x.Location] = also(errs[x.Location], x.Message)
		if field, message := inList(x.Location, x.Message); field != x.Location {
			errs[field] = also(errs[field], message)
		}
	}
	if len(f.Fields) == 0 {
		errs[""] = f.Message
	}
	return errs
}

// also adds a message about a field to the one that there is.
func also(first, message string) string {
	if first == "" {
		return message
	}
	return strings.TrimSuffix(first, ".") + ". " + view.Message("", message)
}

// inList returns the form's field for an element of a list or map, such as ports[1].port or env.NAME, and the message
// with the element named, because a form has one field for all elements.
func inList(location, message string) (field, told string) {
	end := strings.IndexAny(location, "[.")
	if end < 0 {
		return location, message
	}
	field, part := location[:end], location[end+1:]
	if location[end] == '[' {
		index, _, _ := strings.Cut(part, "]")
		n, err := strconv.Atoi(index)
		if err != nil {
			return location, message
		}
		return field, fmt.Sprintf("number %d: %s", n+1, message)
	}
	return field, part + ": " + message
}

// First returns the first message for one of the fields, or "".
func First(errs map[string]string, fields ...string) string {
	for _, f := range fields {
		if errs[f] != "" {
			return errs[f]
		}
	}
	return ""
}

// Back redirects to a page after a form was posted.
func Back(v *Visit, to string) error {
	http.Redirect(v.W, v.R, to, http.StatusSeeOther)
	return nil
}

// Done returns the message after a form succeeded, chosen by the query parameter "done"; "" if there is none.
func Done(v *Visit, said map[string]string) string {
	if v.R.Method != http.MethodGet {
		return ""
	}
	return said[v.R.FormValue("done")]
}
