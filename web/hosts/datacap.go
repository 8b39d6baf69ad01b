package hosts

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// hostData returns the data that a host sent and received this month; a refused form is shown as typed.
func (s *Pages) hostData(v *page.Visit, h id.Host, typed DataCap) (DataCap, error) {
	m, err := s.Hosts.DataMonth(v.R.Context(), v.Who, h)
	if err != nil {
		return DataCap{}, err
	}
	begin, err := time.Parse("2006-01", m.Month)
	if err != nil {
		return DataCap{}, err
	}
	out := typed
	out.Month, out.Next, out.UsedUp = begin.Format("January"), begin.AddDate(0, 1, 0).Format("2 January"),
		m.CappedUntil != nil
	out.Used = []DataUse{dataUse("Sent", m.Sent(), m.UpCapGB)}
	if m.OverlayUp > 0 {
		out.Used = append(out.Used, dataUse("to the internet", m.UpBytes, nil),
			dataUse("between ranks", m.OverlayUp,
				nil))
	}
	out.Used = append(out.Used, dataUse("Received", m.Received(), m.DownCapGB))
	if m.PulledBytes != nil || m.OverlayDown > 0 {
		out.Used = append(out.Used, dataUse("by leases", m.DownBytes, nil))
	}
	if m.OverlayDown > 0 {
		out.Used = append(out.Used, dataUse("between ranks", m.OverlayDown, nil))
	}
	if m.PulledBytes != nil {
		out.Used = append(out.Used, dataUse("images", *m.PulledBytes, nil))
	}
	if out.Errors == nil {
		out.Up, out.Down = capText(m.UpCapGB), capText(m.DownCapGB)
	}
	return out, nil
}

func dataUse(name string, bytes int64, capGB *int64) DataUse {
	u := DataUse{Name: name, Text: view.Bytes(bytes), Percent: -1}
	if capGB != nil {
		u.Percent = host.Percent(bytes, capGB)
		u.Text = fmt.Sprintf("%.1f of %d GB", float64(bytes)/1e9, *capGB)
	}
	return u
}

func capText(gb *int64) string {
	if gb == nil {
		return ""
	}
	return strconv.FormatInt(*gb, 10)
}

func (s *Pages) setDataCap(v *page.Visit) error {
	h, err := s.hostOf(v)
	if err != nil {
		return err
	}
	typed := DataCap{
		Up:   strings.TrimSpace(v.R.FormValue("up_cap_gb")),
		Down: strings.TrimSpace(v.R.FormValue("down_cap_gb")),
	}
	var bad fault.Fields
	change := host.DataCap{UpGB: typedCap(&bad, "up_cap_gb", typed.Up), DownGB: typedCap(&bad, "down_cap_gb", typed.Down)}
	if err = bad.Err(); err == nil {
		err = s.Market.ChangeHost(v.R.Context(), v.Who, h, market.HostChange{Change: host.Change{DataCap: change}})
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			typed.Errors = errs
			return s.showHost(v, h, hostForms{dataCap: typed})
		})
	}
	return page.Back(v, "/hosts/"+h.String()+"#data")
}

// typedCap parses a cap as typed; 0 if empty.
func typedCap(bad *fault.Fields, field, text string) *int64 {
	var gb int64
	if text != "" {
		var err error
		if gb, err = strconv.ParseInt(text, 10, 64); err != nil {
			bad.Add(field, "is not a whole number of GB")
		}
	}
	return &gb
}
