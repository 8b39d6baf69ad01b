package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/fault"
)

// unstorable is what is wrong with a text that isStorable refuses.
const unstorable = "must be UTF-8 without NUL characters"

// isStorable reports whether PostgreSQL can store a text: it takes UTF-8 without NUL.
func isStorable(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// checkURL refuses a request whose path or query holds text that cannot be stored. Bodies are checked by readJSON.
func checkURL(u *url.URL) error {
	if !isStorable(u.Path) {
		return fault.InvalidField("path", unstorable)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fault.InvalidField("query", "is not valid: percent-encode each name and value, and separate them with &")
	}
	var bad fault.Fields
	for name, values := range query {
		if !isStorable(name) {
			return fault.InvalidField("query", unstorable)
		}
		for _, v := range values {
			if !isStorable(v) {
				bad.Add("query."+name, unstorable)
				break
			}
		}
	}
	return bad.Err()
}

// storableURL is checkURL as middleware.
func (a *API) storableURL(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkURL(r.URL); err != nil {
			writeProblem(w, a.problem(r.Context(), err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// jsonFormat reads and writes JSON as huma does, but refuses bodies with text that cannot be stored.
var jsonFormat = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: readJSON}

func readJSON(raw []byte, into any) error {
	if err := checkJSON(raw); err != nil {
		return err
	}
	return huma.DefaultJSONFormat.Unmarshal(raw, into)
}

// checkJSON returns an error that names the first text in a JSON document that cannot be stored. What is no JSON at all
// passes: the decoder names its error.
func checkJSON(raw []byte) error {
	if utf8.Valid(raw) && !bytes.Contains(raw, []byte(`\u0000`)) {
		return nil
	}
	var v any
	if !utf8.Valid(raw) {
		return errors.New("the body " + unstorable)
	}
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	if at, found := findNUL("body", v); found {
		return errors.New(strings.TrimPrefix(at, "body.") + " " + unstorable)
	}
	return nil
}

// findNUL returns the location of a text with a NUL, in keys and values.
func findNUL(at string, v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return at, strings.IndexByte(v, 0) >= 0
	case []any:
		for i, e := range v {
			if where, found := findNUL(at+"["+strconv.Itoa(i)+"]", e); found {
				return where, true
			}
		}
	case map[string]any:
		for k, e := range v {
			if strings.IndexByte(k, 0) >= 0 {
				return at, true
			}
			if where, found := findNUL(at+"."+k, e); found {
				return where, true
			}
		}
	}
	return "", false
}
