// SPDX-License-Identifier: Apache-2.0
// What both pages use. Everything is written as text, never as markup.
"use strict";
const $ = (id) => document.getElementById(id);
const percent = (x, digits = 1) => (x === null || x === undefined ? "unknown" : (100 * x).toFixed(digits) + " %");
const number = (n) => n.toLocaleString("en");

function clock(s) { // a time of another day has its day
  const at = new Date(1000 * s);
  if (at.toDateString() === new Date().toDateString()) return at.toLocaleTimeString();
  return at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

function say(id, text) { // an alert is read out when it is written, so only what is new is
  if ($(id).textContent !== text) $(id).textContent = text;
}

function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

