package web

import (
	"net/http"

	"github.com/a-h/templ"

	"github.com/musterhq/muster/internal/fault"
)

// render writes one component as the answer.
func (s *Web) render(v *visit, c templ.Component) error {
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	return c.Render(v.r.Context(), v.w)
}

// again shows a form once more with what is wrong beside each field. Faults the visitor cannot mend in the form are
// handed on.
func (s *Web) again(v *visit, err error, show func(errors map[string]string) error) error {
	errs := formErrors(err)
	if errs == nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(formStatus(err))
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
	}
	if len(f.Fields) == 0 {
		errs[""] = f.Message
	}
	return errs
}

func formStatus(err error) int {
	if k := fault.KindOf(err); k != "" {
		return k.HTTPStatus()
	}
	return http.StatusOK
}
