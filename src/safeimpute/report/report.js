(() => {
  const tip = document.getElementById("tip");
  const hide = () => { tip.hidden = true; };
  document.addEventListener("pointerover", (event) => {
    const marked = event.target.closest("[data-tip]");
    if (!marked) { hide(); return; }
    tip.textContent = marked.dataset.tip;
    tip.hidden = false;
    const box = marked.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left + box.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above < 4 ? box.bottom + 8 : above}px`;
  });
  document.addEventListener("scroll", hide, { passive: true });
  addEventListener("beforeprint", () => {
    hide();
    document.querySelectorAll("details").forEach((part) => { part.open = true; });
  });
})();
