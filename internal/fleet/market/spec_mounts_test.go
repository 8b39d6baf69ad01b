package market

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func TestMounts(t *testing.T) {
	t.Parallel()
	vol, other := id.New[id.Volume]().String(), id.New[id.Volume]().String()
	bucket := id.New[id.Bucket]().String()
	for name, c := range map[string]struct{ mounts, nodes, field string }{
		"the least":         {`[{"path":"/data","volume":"V"}]`, "1", ""},
		"everything":        {`[{"path":"/data","volume":"V","mode":"ro","pause":"never","snapshot":{"every_s":60}}]`, "4", ""},
		"two":               {`[{"path":"/data","volume":"V"},{"path":"/data2","volume":"W"}]`, "1", ""},
		"no list":           {`{}`, "1", "mounts"},
		"no volume":         {`[{"path":"/data"}]`, "1", "mounts[0].volume"},
		"not an id":         {`[{"path":"/data","volume":"cl_x"}]`, "1", "mounts[0].volume"},
		"relative":          {`[{"path":"data","volume":"V"}]`, "1", "mounts[0].path"},
		"root":              {`[{"path":"/","volume":"V"}]`, "1", "mounts[0].path"},
		"parent":            {`[{"path":"/a/../etc","volume":"V"}]`, "1", "mounts[0].path"},
		"hides the system":  {`[{"path":"/usr","volume":"V"}]`, "1", "mounts[0].path"},
		"in the system":     {`[{"path":"/proc/x","volume":"V"}]`, "1", "mounts[0].path"},
		"scratch":           {`[{"path":"/scratch/x","volume":"V"}]`, "1", "mounts[0].path"},
		"mode":              {`[{"path":"/data","volume":"V","mode":"w"}]`, "1", "mounts[0].mode"},
		"many writers":      {`[{"path":"/data","volume":"V"}]`, "2", "mounts[0].mode"},
		"ranks":             {`[{"path":"/data","volume":"V","mode":"ranks","snapshot":{"every_s":60}}]`, "8", ""},
		"nested":            {`[{"path":"/a","volume":"V"},{"path":"/a/b","volume":"W"}]`, "1", "mounts[1].path"},
		"twice":             {`[{"path":"/a","volume":"V"},{"path":"/b","volume":"V"}]`, "1", "mounts[1].volume"},
		"too often":         {`[{"path":"/a","volume":"V","snapshot":{"every_s":1}}]`, "1", "mounts[0].snapshot.every_s"},
		"unknown":           {`[{"path":"/a","volume":"V","x":1}]`, "1", "mounts[0].x"},
		"a bucket":          {`[{"path":"/a","bucket":"B"}]`, "4", ""},
		"all of a bucket":   {`[{"path":"/a","bucket":"B","mode":"ro","cache_gb":500}]`, "1", ""},
		"bucket and volume": {`[{"path":"/a","bucket":"B"},{"path":"/b","volume":"V"}]`, "1", ""},
		"not a bucket":      {`[{"path":"/a","bucket":{}}]`, "1", "mounts[0].bucket"},
		"a volume's id":     {`[{"path":"/a","bucket":"V"}]`, "1", "mounts[0].bucket"},
		"both in one":       {`[{"path":"/a","volume":"V","bucket":"B"}]`, "1", "mounts[0].bucket"},
		"bucket's mode":     {`[{"path":"/a","bucket":"B","mode":"ranks"}]`, "1", "mounts[0].mode"},
		"bucket's cache":    {`[{"path":"/a","bucket":"B","cache_gb":501}]`, "1", "mounts[0].cache_gb"},
		"negative cache":    {`[{"path":"/a","bucket":"B","cache_gb":-1}]`, "1", "mounts[0].cache_gb"},
		"cache of a volume": {`[{"path":"/a","volume":"V","cache_gb":1}]`, "1", "mounts[0].cache_gb"},
		"bucket's snapshot": {`[{"path":"/a","bucket":"B","snapshot":{"every_s":60}}]`, "1", "mounts[0].snapshot"},
		"bucket's pause":    {`[{"path":"/a","bucket":"B","pause":"never"}]`, "1", "mounts[0].pause"},
		"bucket twice":      {`[{"path":"/a","bucket":"B"},{"path":"/b","bucket":"B"}]`, "1", "mounts[1].bucket"},
		"bucket inside":     {`[{"path":"/a","volume":"V"},{"path":"/a/b","bucket":"B"}]`, "1", "mounts[1].path"},
		"lazy":              {`[{"path":"/a","volume":"V","mode":"ro","lazy":true}]`, "8", ""},
		"lazy with a cache": {`[{"path":"/a","volume":"V","mode":"ro","lazy":true,"cache_gb":500}]`, "1", ""},
		"lazy's cache":      {`[{"path":"/a","volume":"V","mode":"ro","lazy":true,"cache_gb":501}]`, "1", "mounts[0].cache_gb"},
		"lazy bucket":       {`[{"path":"/a","bucket":"B","lazy":true}]`, "1", "mounts[0].lazy"},
		"lazy and written":  {`[{"path":"/a","volume":"V","lazy":true}]`, "1", "mounts[0].lazy"},
		"lazy ranks":        {`[{"path":"/a","volume":"V","mode":"ranks","lazy":true}]`, "2", "mounts[0].lazy"},
		"lazy is no text":   {`[{"path":"/a","volume":"V","mode":"ro","lazy":"yes"}]`, "1", "mounts[0].lazy"},
		"shared":            {`[{"path":"/a","shared":"lab-nfs"}]`, "8", ""},
		"shared and volume": {`[{"path":"/a","shared":"x"},{"path":"/b","volume":"V"},{"path":"/c","bucket":"B"}]`, "1", ""},
		"shared's name":     {`[{"path":"/a","shared":"../x"}]`, "1", "mounts[0].shared"},
		"shared's mode":     {`[{"path":"/a","shared":"x","mode":"ranks"}]`, "1", "mounts[0].mode"},
		"shared's snapshot": {`[{"path":"/a","shared":"x","snapshot":{"every_s":60}}]`, "1", "mounts[0].snapshot"},
		"shared's pause":    {`[{"path":"/a","shared":"x","pause":"never"}]`, "1", "mounts[0].pause"},
		"shared's cache":    {`[{"path":"/a","shared":"x","cache_gb":1}]`, "1", "mounts[0].cache_gb"},
		"shared and lazy":   {`[{"path":"/a","shared":"x","mode":"ro","lazy":true}]`, "1", "mounts[0].lazy"},
		"shared twice":      {`[{"path":"/a","shared":"x"},{"path":"/b","shared":"x"}]`, "1", "mounts[1].shared"},
		"three in one":      {`[{"path":"/a","shared":"x","bucket":"B"}]`, "1", "mounts[0].shared"},
		"pause":             {`[{"path":"/a","volume":"V","pause":"always"}]`, "1", "mounts[0].pause"},
		"unknown in policy": {`[{"path":"/a","volume":"V","snapshot":{"x":1}}]`, "1", "mounts[0].snapshot.x"},
	} {
		raw := strings.NewReplacer(`"V"`, `"`+vol+`"`, `"W"`, `"`+other+`"`,
			`"B"`, `"`+bucket+`"`).Replace(c.mounts)
		s, err := ParseQuoteSpec([]byte(`{"nodes":` + c.nodes + `,"mounts":` + raw + `}`))
		if c.field == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			b, _ := json.Marshal(s)
			var back Spec
			if err := json.Unmarshal(b, &back); err != nil || len(back.Mounts) != len(s.Mounts) ||
				back.Mounts[0] != s.Mounts[0] {
				t.Errorf("%s comes back as %+v: %v", name, back.Mounts, err)
			}
			continue
		}
		f := fault.From(err)
		if f == nil || len(f.Fields) == 0 || f.Fields[0].Location != c.field {
			t.Errorf("%s: %v, want a fault of %s", name, err, c.field)
		}
	}
	s, err := ParseQuoteSpec([]byte(`{"mounts":[{"path":"/data","volume":"` + vol + `"}]}`))
	if err != nil || s.Mounts[0].Mode != "rw" || s.Mounts[0].Snapshot != (SnapshotPolicy{OnNotice: true, OnEnd: true}) {
		t.Errorf("defaults: %+v %v", s.Mounts, err)
	}
}
