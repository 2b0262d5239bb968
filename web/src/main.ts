import { mount } from "svelte";
import "uplot/dist/uPlot.min.css";
import "./page.css";
import Page from "./Page.svelte";

const target = document.getElementById("page");
if (target) mount(Page, { target });
