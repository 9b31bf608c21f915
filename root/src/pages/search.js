// Shortcuts for the search page; everything works without this file.
// "/" goes to the search box, Escape leaves it, "j" and "k" walk the results.
(function () {
  "use strict";
  var box = document.getElementById("q");
  var form = box && box.form;

  function typing(target) {
    return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName));
  }

  function walk(step) {
    var links = Array.prototype.slice.call(document.querySelectorAll(".hits a.go"));
    if (!links.length) { return; }
    var at = links.indexOf(document.activeElement);
    var next = at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + step, 0), links.length - 1);
    links[next].focus();
    links[next].scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey) { return; }
    if (typing(event.target)) {
      if (event.key === "Escape" && event.target === box) { box.blur(); }
      return;
    }
    if (event.key === "/" && box) { event.preventDefault(); box.focus(); box.select(); }
    if (event.key === "j") { walk(1); }
    if (event.key === "k") { walk(-1); }
  });

  if (form) {
    form.addEventListener("submit", function (event) {
      if (!box.value.trim()) { event.preventDefault(); box.focus(); return; }
      form.setAttribute("aria-busy", "true");
    });
    // Coming back by the history must not leave the button dimmed.
    window.addEventListener("pageshow", function () { form.removeAttribute("aria-busy"); });
  }

  // On a narrow screen the filters start closed, so that results come first.
  var filters = document.querySelector(".facets details");
  if (filters && window.matchMedia("(max-width: 820px)").matches) { filters.removeAttribute("open"); }
})();
