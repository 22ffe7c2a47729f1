package console

import (
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func keys(text string) chromedp.Action[chromedp.Void] { return chromedp.KeyEvent(text) }

func ctrlK() chromedp.Action[chromedp.Void] {
	return chromedp.KeyEvent("k", chromedp.KeyModifiers(kb.ModifierCtrl))
}

func blur() chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void]("document.activeElement.blur()")
}
