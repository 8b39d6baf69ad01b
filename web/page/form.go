package page

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"bytes"

	"github.com/a-h/templ"

	"github.com/musterhq/muster/internal/fault"
)

// Render writes one component as the answer, whole or not at all: what cannot be rendered becomes an error page.
func (s *Site) Render(v *Visit, c templ.Component) error {
	var b bytes.Buffer
	if err := c.Render(v.R.Context(), &b); err != nil {
		return err
	}
	v.W.Header().Set("Content-Type", "text/html; charset=utf-8")
	if v.Status != 0 {
		v.W.WriteHeader(v.Status)
	}
	_, _ = b.WriteTo(v.W)
	return nil
}

// Again shows a form once more with what is wrong beside each field. Faults the visitor cannot mend in the form are
// handed on.
func (s *Site) Again(v *Visit, err error, show func(errors map[string]string) error) error {
	errs := FormErrors(err)
	if errs == nil {
		return err
	}
	v.Status = fault.KindOf(err).HTTPStatus()
	return show(errs)
}

// FormErrors maps a fault to messages by field, "" being the form as a whole; nil when it is no matter of the form.
func FormErrors(err error) map[string]string {
	f := fault.From(err)
	if f == nil || f.Kind == fault.Internal || f.Kind == fault.NotFound {
		return nil
	}
	errs := map[string]string{}
	for _, x := range f.Fields {
		errs[x.Location] = x.Message
		if field, message := inList(x.Location, x.Message); errs[field] == "" {
			errs[field] = message
		}
	}
	if len(f.Fields) == 0 {
		errs[""] = f.Message
	}
	return errs
}

// inList is the form's field for one part of a list or map, such as ports[1].port or env.NAME, and the message with the
// part named: a form has one field for all of them.
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

// First is the first message there is for one of the fields.
func First(errs map[string]string, fields ...string) string {
	for _, f := range fields {
		if errs[f] != "" {
			return errs[f]
		}
	}
	return ""
}

// Back answers a posted form by showing the page again.
func Back(v *Visit, to string) error {
	http.Redirect(v.W, v.R, to, http.StatusSeeOther)
	return nil
}

// Done is the sentence that a page shows after a form worked, by the word its address carries.
func Done(v *Visit, said map[string]string) string {
	if v.R.Method != http.MethodGet {
		return ""
	}
	return said[v.R.FormValue("done")]
}
