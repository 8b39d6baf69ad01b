package page

import "github.com/musterhq/muster/internal/fault"

// AdminRows is how many rows a page of the audit log, of documents and of the admin console shows.
const AdminRows = 50

// After parses the cursor of a list's page; the zero id is the start.
func After[T interface{ IsZero() bool }, P interface {
	*T
	UnmarshalText([]byte) error
}](v *Visit) (T, error) {
	var x T
	if err := P(&x).UnmarshalText([]byte(v.R.FormValue("after"))); err != nil {
		return x, fault.New(fault.NotFound, "page not found")
	}
	return x, nil
}

// Older returns the URL of a list's next page.
func Older(v *Visit, cursor string) string {
	q := v.R.URL.Query()
	q.Del("done")
	q.Set("after", cursor)
	return v.R.URL.Path + "?" + q.Encode()
}
