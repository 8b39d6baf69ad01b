package web

import "github.com/musterhq/muster/internal/fault"

// adminRows is how many rows a page of the desk shows.
const adminRows = 50

// after reads the cursor of a list's page, "" being the start.
func after[T interface{ IsZero() bool }, P interface {
	*T
	UnmarshalText([]byte) error
}](v *visit) (T, error) {
	var x T
	if err := P(&x).UnmarshalText([]byte(v.r.FormValue("after"))); err != nil {
		return x, fault.New(fault.NotFound, "there is no such page")
	}
	return x, nil
}

// older is the address of a list's next page.
func older(v *visit, cursor string) string {
	q := v.r.URL.Query()
	q.Del("done")
	q.Set("after", cursor)
	return v.r.URL.Path + "?" + q.Encode()
}
