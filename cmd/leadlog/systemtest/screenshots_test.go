package systemtest

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// make screenshots runs this test, which renews the screenshots of the documents with made-up leads.
func TestConsole_Screenshots(t *testing.T) {
	directory := os.Getenv("LEADLOG_TEST_SCREENSHOTS")
	if directory == "" {
		t.Skip("make screenshots runs it")
	}
	settings := serveSettings(t)
	jwt := provision(t, settings)
	_, base := serve(t, settings)
	c := openChromium(t, base)
	c.signIn(jwt)
	c.open("/console/demo")
	c.press("Add demo data")
	c.waitText("#demo", "40 leads")
	for _, picture := range []struct{ name, page, scheme string }{
		{"overview", "/console", "light"},
		{"lead", c.leadNamed("A••• M•••"), "light"},
		{"pipeline", "/console/pipeline", "dark"},
	} {
		c.emulate(1280, picture.scheme)
		c.open(picture.page)
		var shot []byte
		c.do(chromedp.CaptureScreenshot(&shot))
		require.NoError(t, os.WriteFile(filepath.Join(directory, picture.name+".png"), small(t, shot), 0o644))
	}
}

// small returns a PNG in its 256 most frequent colours, which are a third of the bytes.
func small(t *testing.T, shot []byte) []byte {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(shot))
	require.NoError(t, err)
	area := picture.Bounds()
	pixels := map[color.Color]int{}
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			pixels[picture.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(pixels), func(a, b color.Color) int {
		return cmp.Compare(pixels[b], pixels[a])
	})
	few := image.NewPaletted(area, colors[:min(256, len(colors))])
	draw.Draw(few, area, picture, area.Min, draw.Src)
	var out bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, few))
	return out.Bytes()
}

// signIn starts a session.
func (c *chromium) signIn(jwt string) {
	c.t.Helper()
	c.open("/console/leads")
	c.do(chromedp.SetValue("#jwt", jwt, chromedp.ByQuery))
	c.press("Sign in")
}

// leadNamed returns the path of the page of the oldest lead whose masked name is as given.
func (c *chromium) leadNamed(name string) (path string) {
	c.t.Helper()
	c.open("/console/leads")
	c.evaluate(fmt.Sprintf(`[...document.querySelectorAll("#leads th a")].findLast((one) =>
		one.textContent === %q)?.pathname`, name), &path)
	return path
}
