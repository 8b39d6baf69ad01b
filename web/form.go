package web

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"bytes"

	"github.com/a-h/templ"

	"github.com/musterhq/muster/internal/fault"
)

// render writes one component as the answer, whole or not at all: what cannot be rendered becomes an error page.
func (s *Web) render(v *visit, c templ.Component) error {
	var b bytes.Buffer
	if err := c.Render(v.r.Context(), &b); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if v.status != 0 {
		v.w.WriteHeader(v.status)
	}
	_, _ = b.WriteTo(v.w)
	return nil
}

// again shows a form once more with what is wrong beside each field. Faults the visitor cannot mend in the form are
// handed on.
func (s *Web) again(v *visit, err error, show func(errors map[string]string) error) error {
	errs := formErrors(err)
	if errs == nil {
		return err
	}
	v.status = fault.KindOf(err).HTTPStatus()
	return show(errs)
}

// formErrors maps a fault to messages by field, "" being the form as a whole; nil when it is no matter of the form.
func formErrors(err error) map[string]string {
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

// first is the first message there is for one of the fields.
func first(errs map[string]string, fields ...string) string {
	for _, f := range fields {
		if errs[f] != "" {
			return errs[f]
		}
	}
	return ""
}

// back answers a posted form by showing the page again.
func back(v *visit, to string) error {
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
	return nil
}

// done is the sentence that a page shows after a form worked, by the word its address carries.
func done(v *visit, said map[string]string) string {
	if v.r.Method != http.MethodGet {
		return ""
	}
	return said[v.r.FormValue("done")]
}
