package page

import (
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/web/view"
)

// Countries are all countries, for a form: sent by their code, shown by their name.
func Countries() []view.Option {
	var out []view.Option
	for _, c := range account.Countries() {
		out = append(out, view.Option{Value: c.Code, Name: c.Name})
	}
	return out
}
