package audit

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strings"
	"time"
)

// CSVRows is how many events a file has at most.
const CSVRows = 10_000

// CSV writes events as a table with a heading, in the order given. Texts that a spreadsheet would compute are set off
// by an apostrophe.
func CSV(w io.Writer, list []Found) error {
	rows := make([][]string, 0, len(list)+1)
	rows = append(rows, []string{"at", "act", "who", "org_id", "org", "object_id", "object", "address", "details"})
	for _, e := range list {
		detail := ""
		if len(e.Detail) > 0 {
			b, err := json.Marshal(e.Detail)
			if err != nil {
				return err
			}
			detail = string(b)
		}
		org := ""
		if !e.Org.IsZero() {
			org = e.Org.String()
		}
		rows = append(rows, []string{e.At.UTC().Format(time.RFC3339Nano), plain(e.Action), plain(e.Email), org,
			plain(e.OrgName), plain(e.Object), plain(e.Name), plain(e.Address), plain(detail)})
	}
	return csv.NewWriter(w).WriteAll(rows)
}

func plain(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
